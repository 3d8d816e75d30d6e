// pg-boss: fetch a batch, complete it.

import PgBoss from 'pg-boss';
import { answer, connection, task } from './task.mjs';

const QUEUE = 'bench';
const boss = new PgBoss(connection);
boss.on('error', (error) => {
  console.error(error);
  process.exit(1);
});
await boss.start();
await boss.createQueue(QUEUE);

const MOST_AT_ONCE = 500;

async function add(events) {
  for (let left = events; left > 0; left -= MOST_AT_ONCE) {
    const jobs = Array.from({ length: Math.min(left, MOST_AT_ONCE) }, () => ({
      name: QUEUE,
      data: task.payload,
    }));
    await boss.insert(jobs);
  }
}

async function drain() {
  let moved = 0;
  for (;;) {
    const jobs = await boss.fetch(QUEUE, { batchSize: task.batch });
    if (jobs.length === 0) return moved;
    await boss.complete(
      QUEUE,
      jobs.map((job) => job.id),
    );
    moved += jobs.length;
  }
}

await add(task.batch);
await drain();
await add(task.events);
await answer(drain);
await boss.stop({ graceful: false });
