// Drain pg-boss's queue with its own worker. Protocol: see __init__.py.

import { PgBoss } from 'pg-boss'
import { Count, waitForStart } from './work.js'

const [command, url, number] = process.argv.slice(2)
const boss = new PgBoss({
  connectionString: url,
  schedule: false,
  supervise: false,
  useListenNotify: command === 'work',
})
boss.on('error', (error) => {
  console.error(error)
  process.exit(1)
})
await boss.start()

if (command === 'prepare') {
  await boss.createQueue('noop', { notify: true })
  for (let start = 0; start < Number(number); start += 1000) {
    const jobs = Array.from({ length: 1000 }, (_, nth) => ({ data: { number: start + nth } }))
    await boss.insert('noop', jobs)
  }
  await boss.stop({ graceful: false })
  process.exit(0)
} else {
  await waitForStart()
  const count = new Count(Number(number))
  // Its default is one job per poll of two seconds.
  await boss.work('noop', { batchSize: 100, burstWhenBatchFull: true }, async (jobs) => {
    for (const _ of jobs) count.begin()
  })
}
