// Log in with @platformatic/kafka, write a record, and read it back as a member of a group.
//
// The login comes as JSON on standard input (login_clients.py); topic, group and value are the
// arguments.
import { readFileSync } from 'node:fs'
import { Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'

const who = JSON.parse(readFileSync(0))
const [topic, group, value] = process.argv.slice(2)

const tls = { ca: [readFileSync(who.Authority)] }
const sasl = { mechanism: who.Mechanism }
if (who.Mechanism === 'OAUTHBEARER') {
  sasl.token = who.Token
} else if (who.Mechanism) {
  Object.assign(sasl, { username: who.User, password: who.Password })
} else {
  tls.cert = tls.key = readFileSync(who.Certificate)
}
const connection = {
  clientId: 'login',
  bootstrapBrokers: [who.Bootstrap],
  tls,
  sasl: who.Mechanism ? sasl : undefined,
  retries: 2,
  retryDelay: 200,
}

const producer = new Producer({ ...connection, serializers: stringSerializers })
try {
  await producer.send({ messages: [{ topic, value }] })
} catch (error) {
  console.error(whole(error))
  process.exit(1)
}
await producer.close()
const consumer = new Consumer({ ...connection, groupId: group, deserializers: stringDeserializers })
const records = await consumer.consume({ topics: [topic], mode: 'earliest' })
for await (const record of records) {
  if (record.value === value) break
}
await consumer.close(true)

// What went wrong lies beneath what failed because of it.
function whole(error) {
  return [error.message, ...(error.errors ?? []).map(whole), error.cause && whole(error.cause)]
    .filter(Boolean)
    .join(': ')
}
