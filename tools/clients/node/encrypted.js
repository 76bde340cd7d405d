// Writes records with kafkajs over TLS and reads them back: `encrypted.js SETTINGS`, which is JSON with bootstrap, topic,
// count, ca (a file) and pem (a file with key and certificate, or none). Says `read COUNT`, or `refused: MESSAGE`.
'use strict'

const fs = require('fs')
const { Kafka, logLevel } = require('kafkajs')

const { bootstrap, topic, count, ca, pem } = JSON.parse(process.argv[2])
const shown = pem ? { key: fs.readFileSync(pem, 'utf8'), cert: fs.readFileSync(pem, 'utf8') } : {}
const ssl = { ca: [fs.readFileSync(ca, 'utf8')], servername: 'localhost', ...shown }
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, ssl, retry: { retries: 0 } })

async function main() {
  const producer = kafka.producer()
  await producer.connect()
  const messages = Array.from({ length: count }, (_, number) => ({ value: `value ${number}`, partition: 0 }))
  await producer.send({ topic, acks: -1, messages })
  await producer.disconnect()
  const consumer = kafka.consumer({ groupId: `${topic}-group`, maxWaitTimeInMs: 200 })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  let found = 0
  await new Promise(resolve =>
    consumer.run({ eachMessage: async () => ((found += 1) === count ? resolve() : undefined) })
  )
  console.log(`read ${found}`)
}

main()
  .catch(error => console.log(`refused: ${error.message}`))
  .finally(() => process.exit(0))
