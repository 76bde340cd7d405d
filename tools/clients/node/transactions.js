// Commands for transactional producers of kafkajs; tests control each step.
"use strict";

const producers = new Map();

// kafkajs requests the producer epoch when its first transaction begins, so one is begun here and used later.
async function openProducer(kafka, { producer: name, transactional_id: transactionalId, timeout_ms: timeout }) {
  const producer = kafka.producer({ transactionalId, transactionTimeout: timeout, maxInFlightRequests: 1, idempotent: true });
  await producer.connect();
  producers.set(name, { producer, current: await producer.transaction(), isBegun: false });
  return null;
}

async function begin({ producer: name }) {
  const state = producers.get(name);
  if (!state.current.isActive()) state.current = await state.producer.transaction();
  else if (state.isBegun) throw new Error("the transaction before has not ended");
  state.isBegun = true;
  return null;
}

async function sendOffsets({ producer: name, group, offsets }) {
  const topics = [...new Set(offsets.map(([topic]) => topic))].map((topic) => ({
    topic,
    partitions: offsets.filter(([of]) => of === topic).map(([, partition, offset, metadata]) => ({ partition, offset: String(offset), metadata })),
  }));
  await producers.get(name).current.sendOffsets({ consumerGroupId: group, topics });
  return null;
}

async function end(name, how) {
  const state = producers.get(name);
  await state.current[how]();
  state.isBegun = false;
  return null;
}

async function commitMany({ producer, topic, first, count }) {
  for (let number = first; number < first + count; number++) {
    await begin({ producer });
    await producers.get(producer).current.send({ topic, messages: [{ value: String(number), partition: 0 }] });
    await end(producer, "commit");
  }
  return null;
}

async function closeProducer({ producer: name }) {
  const state = producers.get(name);
  producers.delete(name);
  await state.producer.disconnect(); // without completing an open transaction
  return null;
}

// The commands, for a driver that creates clients and messages.
const transactions = (kafka, toMessage) => ({
  open_producer: (given) => openProducer(kafka(given.bootstrap), given),
  begin_transaction: begin,
  send_in_transaction: async ({ producer, topic, records }) => {
    await producers.get(producer).current.send({ topic, acks: -1, messages: records.map(toMessage) });
    return null;
  },
  send_offsets: sendOffsets,
  commit_transaction: ({ producer }) => end(producer, "commit"),
  abort_transaction: ({ producer }) => end(producer, "abort"),
  commit_many: commitMany,
  close_producer: closeProducer,
});

module.exports = { transactions };
