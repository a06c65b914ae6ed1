// Log in with KafkaJS, write a record, and read it back as a member of a group.
//
// The login comes as JSON on standard input (login_clients.py); topic, group and value are the
// arguments.
import { readFileSync } from 'node:fs'
import { Kafka, logLevel } from 'kafkajs'

const who = JSON.parse(readFileSync(0))
const [topic, group, value] = process.argv.slice(2)

const ssl = { ca: [readFileSync(who.Authority)] }
const sasl = { mechanism: who.Mechanism.toLowerCase() }
if (who.Mechanism === 'OAUTHBEARER') {
  sasl.oauthBearerProvider = async () => ({ value: who.Token })
} else if (who.Mechanism) {
  Object.assign(sasl, { username: who.User, password: who.Password })
} else {
  ssl.cert = ssl.key = readFileSync(who.Certificate)
}
const kafka = new Kafka({
  brokers: [who.Bootstrap],
  ssl,
  sasl: who.Mechanism ? sasl : undefined,
  logLevel: logLevel.NOTHING,
})

const producer = kafka.producer()
await producer.connect()
await producer.send({ topic, messages: [{ value }] })
await producer.disconnect()
const consumer = kafka.consumer({ groupId: group })
await consumer.connect()
await consumer.subscribe({ topic, fromBeginning: true })
await new Promise((resolve) => {
  consumer.run({
    eachMessage: async ({ message }) => {
      if (message.value.toString() === value) resolve()
    },
  })
})
await consumer.disconnect()
