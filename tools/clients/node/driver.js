// Driver of kafkajs: reads commands from standard input, one JSON object per line, and writes responses to standard output.
// The tests' drivers/wire.py describes the protocol. Packages are found through NODE_PATH.
"use strict";

const readline = require("readline");
const { Kafka, logLevel } = require("kafkajs");
const kafkajsVersion = require("kafkajs/package.json").version;
const { administration } = require("./admin");
const { codecTypes, installCodecs } = require("./codecs");
const { secured } = require("./secured");
const { transactions } = require("./transactions");

const COMMAND_TIMEOUT_MS = 30_000;
const FETCH_WAIT_MS = 200; // a consumer leaves and rebalances only between fetches
const kafka = (bootstrap) => new Kafka({ brokers: bootstrap.split(","), logLevel: logLevel.NOTHING, retry: { retries: 8 } });
const bytes = (text) => (text === null ? null : Buffer.from(text, "base64"));
const text = (value) => (value === null || value === undefined ? null : Buffer.from(value).toString("base64"));

// kafkajs stores headers in an object; repeated names have an array of values.
function toHeaders(pairs) {
  const headers = {};
  for (const [name, value] of pairs) headers[name] = [...(headers[name] || []), bytes(value)];
  return headers;
}

function fromHeaders(headers) {
  return Object.entries(headers || {}).flatMap(([name, value]) => (Array.isArray(value) ? value : [value]).map((each) => [name, text(each)]));
}

const toMessage = (record) => ({
  key: bytes(record.key),
  value: bytes(record.value),
  headers: toHeaders(record.headers),
  ...(record.partition === null ? {} : { partition: record.partition }),
  ...(record.timestamp_ms === null ? {} : { timestamp: String(record.timestamp_ms) }),
});

const fromMessage = (topic, partition, message) => ({
  topic,
  partition,
  offset: Number(message.offset),
  key: text(message.key),
  value: text(message.value),
  headers: fromHeaders(message.headers),
  timestamp_ms: Number(message.timestamp),
});

async function produce({ bootstrap, topic, codec, records, idempotent = false }) {
  const producer = kafka(bootstrap).producer(idempotent ? { idempotent, maxInFlightRequests: 1 } : {});
  await producer.connect();
  try {
    await producer.send({ topic, acks: -1, compression: codecTypes[codec], messages: records.map(toMessage) });
  } finally {
    await producer.disconnect();
  }
  return null;
}

const within = (promise, milliseconds) => {
  let timer;
  const late = new Promise((resolve) => (timer = setTimeout(resolve, milliseconds)));
  return Promise.race([promise, late]).finally(() => clearTimeout(timer));
};

// kafkajs only reads as a member of a group.
async function consume({ bootstrap, topics, group, timeout_s: timeoutS, isolation = null }) {
  const missing = { ...topics };
  const records = [];
  const lacking = () => Object.entries(missing).filter(([, count]) => count > 0);
  const patience = { retry: { retries: 0 }, maxWaitTimeInMs: FETCH_WAIT_MS };
  const reads = isolation === null ? {} : { readUncommitted: isolation === "read_uncommitted" };
  const consumer = kafka(bootstrap).consumer({ groupId: group, ...patience, ...reads });
  let problem = null;
  try {
    await consumer.connect();
    await consumer.subscribe({ topics: Object.keys(topics), fromBeginning: true });
    const complete = new Promise((resolve, reject) => {
      consumer.on(consumer.events.CRASH, ({ payload }) => reject(payload.error));
      const eachMessage = async ({ topic, partition, message }) => {
        missing[topic] -= 1;
        records.push(fromMessage(topic, partition, message));
        if (lacking().length === 0) resolve();
      };
      consumer.run({ autoCommit: true, eachMessage }).catch(reject);
    });
    await within(complete, timeoutS * 1000);
  } catch (error) {
    problem = String(error); // the records read so far are still reported
  } finally {
    await consumer.disconnect();
  }
  if (problem === null && lacking().length > 0) problem = `still missing at the deadline: ${JSON.stringify(lacking())}`;
  return { records, problem };
}

const members = new Map();

async function join({ member, bootstrap, group, topics }) {
  const timing = { sessionTimeout: 10_000, heartbeatInterval: 500, maxWaitTimeInMs: FETCH_WAIT_MS };
  const consumer = kafka(bootstrap).consumer({ groupId: group, ...timing });
  const state = { consumer, assignment: [], rebalances: 0, records: [], problem: null };
  members.set(member, state);
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    state.assignment = Object.entries(payload.memberAssignment).flatMap(([topic, partitions]) => partitions.map((partition) => [topic, partition]));
    state.rebalances += 1;
  });
  consumer.on(consumer.events.REBALANCING, () => (state.assignment = []));
  consumer.on(consumer.events.CRASH, ({ payload }) => (state.problem = String(payload.error)));
  await consumer.connect();
  await consumer.subscribe({ topics, fromBeginning: true });
  const eachMessage = async ({ topic, partition, message }) => {
    state.records.push(fromMessage(topic, partition, message));
  };
  consumer.run({ autoCommit: false, eachMessage }).catch((error) => (state.problem = String(error)));
  return null;
}

function member({ member: name }) {
  const state = members.get(name);
  const records = state.records;
  state.records = [];
  return { assignment: state.assignment, rebalances: state.rebalances, records, problem: state.problem };
}

async function commit({ member: name, offsets }) {
  await members
    .get(name)
    .consumer.commitOffsets(offsets.map(([topic, partition, offset, metadata]) => ({ topic, partition, offset: String(offset), metadata })));
  return null;
}

async function leave({ member: name }) {
  const state = members.get(name);
  members.delete(name);
  await within(state.consumer.disconnect(), COMMAND_TIMEOUT_MS);
  return null;
}

const capabilities = () => ({
  version: kafkajsVersion,
  codecs: Object.keys(codecTypes),
  headers: true,
  null_headers: false, // its encoder requires a value
  null_key_and_value: true,
  timestamps: true,
  idempotence: true,
  reads_without_group: false,
  assignors: [], // its round-robin assigner has its own format
  commits: true,
  static_members: false, // its requests have a field for the instance id, but its consumer has no option
  transactions: true,
});

const commands = {
  capabilities,
  produce,
  consume,
  join,
  member,
  commit,
  leave,
  ...administration(kafka),
  ...transactions(kafka, toMessage),
  ...secured,
};

async function answer({ id, command, arguments: given }) {
  try {
    return { id, result: await commands[command](given) };
  } catch (error) {
    // a failed command does not end the driver; the test decides
    return { id, error: { name: error.type || error.name, message: String(error.message) } };
  }
}

async function main() {
  await installCodecs();
  for await (const line of readline.createInterface({ input: process.stdin })) {
    process.stdout.write(JSON.stringify(await answer(JSON.parse(line))) + "\n");
  }
  process.exit(0); // members that are still in a group must not keep the process alive
}

main();
