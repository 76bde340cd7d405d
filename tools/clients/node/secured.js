// Writes records with kafkajs and reads them back: `secured.js SETTINGS`, which is JSON with bootstrap, topic, count and
// sasl. Says `read COUNT`, or `refused: MESSAGE` when it is not let in. The packages are found through NODE_PATH.
'use strict'

const { Kafka, logLevel } = require('kafkajs')

const { bootstrap, topic, count, sasl } = JSON.parse(process.argv[2])
if (sasl.token) sasl.oauthBearerProvider = async () => ({ value: sasl.token })
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING, sasl, retry: { retries: 0 } })

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
  .catch(error => console.log(/SASL|Closed connection/.test(`${error.name} ${error.message} ${error.cause}`) ? `refused: ${error.message}` : error.stack))
  .finally(() => process.exit(0))
