// graphile-worker: a task that does nothing, with the local queue and batched completion that its
// documentation recommends for throughput.

import { Logger, run } from 'graphile-worker';
import pg from 'pg';
import { answer, connection, task } from './task.mjs';

const silent = new Logger(() => () => {});
const pool = new pg.Pool({ ...connection, max: 26 });
for (const happened of ['connect', 'acquire']) {
  pool.on(happened, (client) => client.listenerCount('error') || client.on('error', fail));
}
pool.on('error', fail);

function fail(error) {
  console.error(error);
  process.exit(1);
}

let left = 0;
let arrived = () => {};

function expect(events) {
  left = events;
  return new Promise((resolve) => {
    arrived = resolve;
  });
}

const runner = await run({
  pgPool: pool,
  taskList: {
    bench: async () => {
      left -= 1;
      if (left === 0) arrived();
    },
  },
  preset: {
    worker: {
      concurrentJobs: 24,
      localQueue: { size: task.batch },
      completeJobBatchDelay: 0,
      failJobBatchDelay: 0,
      pollInterval: 2000,
      logger: silent,
    },
  },
});

async function add(events) {
  await pool.query(
    `SELECT count(graphile_worker.add_job('bench', $2::json)) FROM generate_series(1, $1::int)`,
    [events, JSON.stringify(task.payload)],
  );
}

const warm = expect(task.batch);
await add(task.batch);
await warm;

// The queue wakes up when the transaction that adds commits, which is when the clock starts.
const done = expect(task.events);
await add(task.events);
await answer(async () => {
  await done;
  await runner.stop(); // the last completions are written
  return task.events;
});
await pool.end();
