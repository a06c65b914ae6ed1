// What both clients write, and how they wait.
export const RECORDS = 40
const PARTITIONS = 4

// As many records of a kind, in all partitions by turns; `fields` are those of every one.
export function records(kind, fields = {}) {
  return Array.from({ length: RECORDS }, (_, index) => ({
    ...fields,
    key: `${index}`,
    value: `${kind}-${index}`,
    headers: { kind },
    partition: index % PARTITIONS,
  }))
}

export async function until(what, isTrue) {
  for (let tries = 0; tries < 300; tries++) {
    if (await isTrue()) return
    await new Promise((resolve) => setTimeout(resolve, 100))
  }
  throw new Error(`30 s went by without ${what}`)
}
