// Drives supabase-js: one JSON command per line on stdin, one JSON line per result or event on
// stdout. Asserts nothing and decides nothing: tests/support/javascript.py is the other end.
//
//   {"id": 1, "do": "open", ...}                      a command
//   {"id": 1, "value": ...}  {"id": 1, "error": ...}  its result
//   {"channel": 3, "state": ...}                      events of a channel, in order
//
// The first argument is the package.json whose node_modules hold supabase-js.

import { createRequire } from 'node:module'
import { createInterface } from 'node:readline'

const require = createRequire(process.argv[2])
const { createClient } = require('@supabase/supabase-js')
const WebSocket = require('ws')

const clients = new Map()
const channels = new Map()

const emit = (line) => process.stdout.write(JSON.stringify(line) + '\n')

const commands = {
  // As in a browser: the publishable key, and the token of the signed-in user.
  async open({ client, url, key, token }) {
    const opened = createClient(url, key, {
      ...(token && { accessToken: async () => token }),
      auth: { persistSession: false, autoRefreshToken: false, detectSessionInUrl: false },
      realtime: { transport: WebSocket, reconnectAfterMs: () => 200 },
    })
    if (token) await opened.realtime.setAuth(token)
    clients.set(client, opened)
  },

  async close({ client }) {
    await clients.get(client).removeAllChannels()
    clients.delete(client)
  },

  async call({ client, schema, name, params, options, steps }) {
    return await execute(clients.get(client).schema(schema).rpc(name, params, options), steps)
  },

  async read({ client, schema, table, steps }) {
    return await execute(clients.get(client).schema(schema).from(table), steps)
  },

  async join({ client, channel, topic, config }) {
    const joined = clients.get(client).channel(topic, { config })
    channels.set(channel, joined)
    joined
      .on('broadcast', { event: '*' }, (message) => emit({ channel, broadcast: message }))
      .on('system', {}, (system) => emit({ channel, system }))
      .subscribe((state, error) => emit({ channel, state, reason: error?.message ?? '' }))
  },

  async leave({ client, channel }) {
    const status = await clients.get(client).removeChannel(channels.get(channel))
    channels.delete(channel)
    return status
  },

  async send({ channel, event, payload, timeout }) {
    return await channels.get(channel).send({ type: 'broadcast', event, payload }, { timeout })
  },

  // Without joining: `send` falls back to the batch endpoint, `httpSend` uses the single one.
  async post({ client, topic, config, event, payload, isBatch }) {
    const unjoined = clients.get(client).channel(topic, { config })
    try {
      return isBatch
        ? await unjoined.send({ type: 'broadcast', event, payload })
        : await unjoined.httpSend(event, payload)
    } finally {
      await clients.get(client).removeChannel(unjoined)
    }
  },

  // The first status after 'sent': 'ok' if the server has replied.
  async heartbeat({ client }) {
    const { realtime } = clients.get(client)
    return await new Promise((resolve) => {
      realtime.onHeartbeat((status) => status !== 'sent' && resolve(status))
      realtime.sendHeartbeat()
    })
  },

  async setAuth({ client, token }) {
    await clients.get(client).realtime.setAuth(token)
  },
}

async function execute(builder, steps) {
  for (const [method, ...values] of steps) builder = builder[method](...values)
  const { data, error, count, status } = await builder
  return { data, error: error && { ...error, message: error.message }, count, status }
}

for await (const line of createInterface({ input: process.stdin })) {
  const { id, do: name, ...command } = JSON.parse(line)
  commands[name](command).then(
    (value) => emit({ id, value: value ?? null }),
    (error) => emit({ id, error: String(error?.message ?? error) })
  )
}
process.exit(0)
