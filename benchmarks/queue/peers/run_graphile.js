// Drain graphile-worker's queue with its own worker. Protocol: see __init__.py.

import { Logger, makeWorkerUtils, run } from 'graphile-worker'
import { Count, waitForStart } from './work.js'

const [command, url, number, tuning] = process.argv.slice(2)
const logger = new Logger(() => () => {})
// Its documented batching, or ten jobs at a time and defaults otherwise.
const settings =
  tuning === 'batched'
    ? { concurrentJobs: 24, localQueue: { size: 500 }, completeJobBatchDelay: 0, maxPoolSize: 30 }
    : { concurrentJobs: 10 }

if (command === 'prepare') {
  const utils = await makeWorkerUtils({ connectionString: url, logger })
  await utils.migrate()
  for (let start = 0; start < Number(number); start += 1000) {
    const jobs = Array.from({ length: 1000 }, (_, nth) => ({
      identifier: 'noop',
      payload: { number: start + nth },
    }))
    await utils.addJobs(jobs)
  }
  await utils.release()
} else {
  await waitForStart()
  const count = new Count(Number(number))
  await run({
    preset: { worker: { connectionString: url, ...settings } },
    logger,
    noHandleSignals: true,
    taskList: { noop: async () => count.begin() },
  })
}
