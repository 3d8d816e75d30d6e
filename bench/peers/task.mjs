// What the bench asks of a script: its one argument is the task, its one line of output the answer.

export const task = JSON.parse(process.argv[2]);
task.payload = JSON.parse(task.payload);

/** Settings for a node-postgres pool or client. */
export const connection = {
  host: task.host,
  port: task.port,
  user: task.user,
  database: task.database,
  options: task.options,
};

/** Times moving events; `move` returns how many it moved. */
export async function answer(move) {
  const began = process.hrtime.bigint();
  const events = await move();
  const seconds = Number(process.hrtime.bigint() - began) / 1e9;
  process.stdout.write(JSON.stringify({ seconds, events }) + '\n');
}
