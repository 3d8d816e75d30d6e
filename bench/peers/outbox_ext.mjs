// outbox_ext through node-postgres: claim a batch, complete it.

import pg from 'pg';
import { answer, connection, task } from './task.mjs';

const CLAIM = {
  name: 'claim',
  text: 'SELECT id, attempt_count, event_type, aggregate_id, payload FROM outbox_claim_batch($1, $2)',
};
const COMPLETE = {
  name: 'complete',
  text: 'SELECT count(*) FROM outbox_complete_batch($1, $2, $3)',
};

const client = new pg.Client(connection);
await client.connect();

async function add(events) {
  await client.query(
    `SELECT count(outbox_enqueue(NULL, 'order', gen_random_uuid(), 'order.created', NULL, $2::jsonb))
     FROM generate_series(1, $1::int)`,
    [events, task.payload],
  );
}

async function drain() {
  let moved = 0;
  for (;;) {
    const { rows } = await client.query({ ...CLAIM, values: ['node', task.batch] });
    if (rows.length === 0) return moved;
    const ids = rows.map((row) => row.id);
    const attempts = rows.map((row) => row.attempt_count);
    await client.query({ ...COMPLETE, values: [ids, 'node', attempts] });
    moved += rows.length;
  }
}

await add(task.batch);
await drain();
await add(task.events);
await answer(drain);
await client.end();
