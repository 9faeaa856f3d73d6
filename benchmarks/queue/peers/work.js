// What the Node programs share: the start signal, and the count of jobs. Protocol: see __init__.py.

import { createInterface } from 'node:readline'

const QUIET_MS = 1000

export async function waitForStart() {
  const lines = createInterface({ input: process.stdin })
  console.log('ready')
  await new Promise((resolve) => lines.once('line', resolve))
}

export class Count {
  jobs = 0
  first = 0
  last = 0

  constructor(seconds) {
    this.seconds = seconds
    // The worker itself keeps waiting when the queue is empty.
    setInterval(() => {
      if (this.jobs && Date.now() - this.last > QUIET_MS) this.report()
    }, 100)
  }

  begin() {
    this.last = Date.now()
    this.first ||= this.last
    this.jobs += 1
    if (this.last - this.first > 1000 * this.seconds) this.report()
  }

  report() {
    console.log(
      JSON.stringify({ jobs: this.jobs, first: this.first / 1000, last: this.last / 1000 }),
    )
    process.exit(0)
  }
}
