// The command `write_and_read`, which tests TLS and SASL; see the tests' drivers/secured.py.
"use strict";

const fs = require("fs");
const { Kafka, logLevel } = require("kafkajs");

const COUNT = 20;
const BURST = 10;
const PAUSE_MS = 20;
const VALUE_CHARACTERS = 1000;
const READ_TIMEOUT_MS = 30_000;
const REAUTHENTICATION_MS = 1000; // before a session expires; the default of 10 s exceeds the tests' sessions
const pause = () => new Promise((resolve) => setTimeout(resolve, PAUSE_MS));

function lineOf({ ca, pem }) {
  if (!ca) return {};
  const shown = pem ? { key: fs.readFileSync(pem, "utf8"), cert: fs.readFileSync(pem, "utf8") } : {};
  return { ssl: { ca: [fs.readFileSync(ca, "utf8")], servername: "localhost", ...shown } };
}

async function fetchedToken(url) {
  const answer = await fetch(url, { method: "POST", body: "grant_type=client_credentials" });
  return { value: (await answer.json()).access_token };
}

function loginOf({ mechanism, user, secret }) {
  if (!mechanism) return {};
  const shown = mechanism === "OAUTHBEARER" ? { oauthBearerProvider: () => fetchedToken(secret) } : { username: user, password: secret };
  return { sasl: { mechanism: mechanism.toLowerCase(), ...shown } };
}

// A failure before the first records are written counts as a rejected login.
async function opened(producer, send) {
  try {
    await producer.connect();
    await send(COUNT);
  } catch (error) {
    await producer.disconnect();
    throw Object.assign(new Error(error.message), { name: "LOGIN_REJECTED" });
  }
}

async function writeAndRead({ bootstrap, topic, until, ...way }) {
  const common = { logLevel: logLevel.NOTHING, retry: { retries: 0 }, reauthenticationThreshold: REAUTHENTICATION_MS };
  const kafka = new Kafka({ brokers: [bootstrap], ...common, ...lineOf(way), ...loginOf(way) });
  const [producer, consumer] = [kafka.producer(), kafka.consumer({ groupId: `${topic}-group`, maxWaitTimeInMs: 200 })];
  const read = [];
  let written = 0;
  const send = async (count) => {
    const messages = Array.from({ length: count }, () => ({ value: `${written++}`.padStart(VALUE_CHARACTERS), partition: 0 }));
    await producer.send({ topic, acks: -1, messages });
  };
  await opened(producer, send);
  try {
    await consumer.connect();
    await consumer.subscribe({ topic, fromBeginning: true });
    await consumer.run({ eachMessage: async ({ message }) => void read.push(Number(message.value.toString())) });
    while (until && !fs.existsSync(until)) {
      await send(BURST);
      await pause();
    }
    const deadline = Date.now() + READ_TIMEOUT_MS;
    while (read.length < written && Date.now() < deadline) await pause();
  } finally {
    await consumer.disconnect();
    await producer.disconnect();
  }
  return { written, read };
}

module.exports = { secured: { write_and_read: writeAndRead } };
