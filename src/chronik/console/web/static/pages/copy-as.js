// Code that reads a given record: Python, CLI or SQL.

import { live } from "../live.js";

const python = (text) => JSON.stringify(text);
const shell = (text) => (/^[\w.\-/:@]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
const sql = (text) => (/^[a-z_]\w*$/i.test(text) ? text : `\`${text.replaceAll("`", "``")}\``);

function bootstrap() {
  const node = live.last?.cluster?.nodes?.find((each) => each.is_me) ?? live.last?.cluster?.nodes?.[0];
  return node?.host ? `${node.host}:${node.port}` : "127.0.0.1:9092";
}

/** The option that logs in, if the cluster requires it. */
const clientConfig = () => (live.session?.authorizer ? " --client-config client.properties" : "");

export const asPython = (topic, { partition, offset }) => `from confluent_kafka import Consumer, TopicPartition

settings = {"bootstrap.servers": ${python(bootstrap())}, "group.id": "console", "enable.auto.commit": False}${pythonLogin()}
consumer = Consumer(settings)
consumer.assign([TopicPartition(${python(topic)}, ${partition}, ${offset})])
message = consumer.poll(10)
print(message.key(), message.value(), message.headers())
consumer.close()`;

/** The settings that log in, if the cluster requires it. */
function pythonLogin() {
  if (!live.session?.authorizer) return "";
  const user = (live.session.principal ?? "").replace(/^User:/, "");
  return `
settings |= {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512",
             "sasl.username": ${python(user)}, "sasl.password": "…", "ssl.ca.location": "ca.pem"}`;
}

export const asCommand = (topic, { partition, offset }) =>
  `chronik consume ${shell(topic)} -p ${partition} --from ${offset} -n 1 --format json -b ${shell(bootstrap())}${clientConfig()}`;

export const asSql = (topic, { partition, offset }) =>
  `chronik pipeline sql ${shell(`SELECT * FROM ${sql(topic)} WHERE _partition = ${partition} AND _offset = ${offset}`)} -b ${shell(bootstrap())}${clientConfig()}`;
