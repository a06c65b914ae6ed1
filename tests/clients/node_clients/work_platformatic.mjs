// What an application does with @platformatic/kafka: records with and without a codec, groups by
// both protocols, commits, and transactions. Arguments: where brokers are, and a topic of four
// partitions. Prints what was seen, as JSON.
import { Admin, Consumer, Producer, stringDeserializers, stringSerializers } from '@platformatic/kafka'
import { RECORDS, records, until } from './work.mjs'

const [bootstrap, topic] = process.argv.slice(2)
const connection = { clientId: 'work', bootstrapBrokers: [bootstrap] }
const seen = {}

async function member(groupId, found, options = {}) {
  const consumer = new Consumer({
    ...connection,
    groupId,
    deserializers: stringDeserializers,
    maxWaitTime: 200,
    ...options,
  })
  const stream = await consumer.consume({
    topics: [topic],
    mode: 'committed',
    fallbackMode: 'earliest',
    autocommit: 100,
  })
  stream.on('data', (record) => found.push(record.value))
  return { consumer, stream }
}

// A stream that still reads when its consumer is closed throws what nobody can catch.
async function leave({ consumer, stream }) {
  await stream.close()
  await consumer.close(true)
}

function held({ consumer }) {
  return (consumer.assignments ?? []).flatMap(({ partitions }) => partitions).length
}

async function committed(groupId) {
  const [group] = await admin.listConsumerGroupOffsets({ groups: [groupId] })
  return (group.topics[0]?.partitions ?? [])
    .map(({ partitionIndex, committedOffset }) => [partitionIndex, Number(committedOffset)])
    .sort()
}

const admin = new Admin(connection)
const producer = new Producer({ ...connection, idempotent: true, serializers: stringSerializers })
await producer.send({ acks: -1, messages: records('plain', { topic }) })
for (const compression of ['gzip', 'snappy', 'lz4']) {
  await producer.send({ acks: -1, messages: records(compression, { topic }), compression })
}
await producer.close()

for (const groupProtocol of ['classic', 'consumer']) {
  const groupId = `${topic}-${groupProtocol}`
  const found = []
  const first = await member(groupId, found, { groupProtocol })
  await until('all records', () => found.length >= 4 * RECORDS)
  // Four kinds of records lie in four partitions.
  await until('all commits', async () => {
    const ends = (await committed(groupId)).map(([, end]) => end)
    return ends.filter((end) => end === RECORDS).length === 4
  })
  const second = await member(groupId, found, { groupProtocol })
  await until('two shares', () => held(first) === 2 && held(second) === 2)
  await leave(second)
  await leave(first)
  seen[groupProtocol] = { records: new Set(found).size, committed: await committed(groupId) }
}

const transactional = new Producer({
  ...connection,
  transactionalId: topic,
  idempotent: true,
  serializers: stringSerializers,
})
const reader = new Consumer({
  ...connection,
  groupId: `${topic}-in-transaction`,
  deserializers: stringDeserializers,
})
const stream = await reader.consume({ topics: [topic], mode: 'earliest', autocommit: false })
const [record] = await stream.take(1).toArray()
const kept = await transactional.beginTransaction()
await kept.addConsumer(reader)
await kept.addOffset(record)
await kept.send({ messages: records('committed', { topic }) })
await kept.commit()
await reader.close(true)
const dropped = await transactional.beginTransaction()
await dropped.send({ messages: records('aborted', { topic }) })
await dropped.abort()
await transactional.close()
const [position] = await committed(`${topic}-in-transaction`)
seen.committedInTransaction = position[1] - Number(record.offset)
await admin.close()

for (const [isolation, isolationLevel] of [['read_uncommitted', 0], ['read_committed', 1]]) {
  const read = []
  const all = (isolationLevel ? 5 : 6) * RECORDS
  const one = await member(`${topic}-${isolation}`, read, { isolationLevel })
  await until(`${all} records`, () => read.length >= all)
  await leave(one)
  seen[isolation] = read.filter((value) => value.startsWith('aborted')).length
}
console.log(JSON.stringify(seen))
process.exit(0)
