// What an application does with KafkaJS: records with and without a codec, a group of two, commits,
// and transactions. Arguments: where brokers are, and a topic of four partitions. Prints what was
// seen, as JSON.
import { CompressionTypes, Kafka, logLevel } from 'kafkajs'
import { RECORDS, records, until } from './work.mjs'

const [bootstrap, topic] = process.argv.slice(2)
const kafka = new Kafka({ brokers: [bootstrap], logLevel: logLevel.NOTHING })
const seen = {}

async function member(groupId, found, options = {}) {
  const consumer = kafka.consumer({ groupId, heartbeatInterval: 300, ...options })
  await consumer.connect()
  await consumer.subscribe({ topic, fromBeginning: true })
  await consumer.run({
    autoCommitInterval: 200,
    eachMessage: async ({ message }) => found.push(message.value.toString()),
  })
  return consumer
}

const admin = kafka.admin()
await admin.connect()
const producer = kafka.producer({ idempotent: true, maxInFlightRequests: 1 })
await producer.connect()
await producer.send({ topic, messages: records('plain') })
await producer.send({ topic, messages: records('gzip'), compression: CompressionTypes.GZIP })
await producer.disconnect()

const groupId = `${topic}-group`
const found = []
const first = await member(groupId, found)
await until('all records', () => found.length >= 2 * RECORDS)
const second = await member(groupId, found)
await until('a group of two', async () => {
  const { groups } = await admin.describeGroups([groupId])
  return groups[0].state === 'Stable' && groups[0].members.length === 2
})
await second.disconnect()
await first.disconnect()
seen.records = new Set(found).size
seen.committed = (await admin.fetchOffsets({ groupId, topics: [topic] }))[0].partitions
  .map(({ partition, offset }) => [partition, Number(offset)])
  .sort()

const transactional = kafka.producer({ transactionalId: topic, maxInFlightRequests: 1 })
await transactional.connect()
const committed = await transactional.transaction()
await committed.send({ topic, messages: records('committed') })
await committed.sendOffsets({
  consumerGroupId: `${groupId}-in-transaction`,
  topics: [{ topic, partitions: [{ partition: 0, offset: '7' }] }],
})
await committed.commit()
const aborted = await transactional.transaction()
await aborted.send({ topic, messages: records('aborted') })
await aborted.abort()
await transactional.disconnect()
seen.committedInTransaction = Number(
  (await admin.fetchOffsets({ groupId: `${groupId}-in-transaction`, topics: [topic] }))[0]
    .partitions[0].offset,
)
await admin.disconnect()

for (const isolation of ['read_uncommitted', 'read_committed']) {
  const read = []
  const options = { readUncommitted: isolation === 'read_uncommitted' }
  const all = (options.readUncommitted ? 4 : 3) * RECORDS
  const reader = await member(`${groupId}-${isolation}`, read, options)
  await until(`${all} records`, () => read.length >= all)
  await reader.disconnect()
  seen[isolation] = read.filter((value) => value.startsWith('aborted')).length
}
console.log(JSON.stringify(seen))
