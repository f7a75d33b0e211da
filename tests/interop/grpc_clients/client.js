// What RocketMQ's Node client sees at a proxy: a JSON line each, without ids and times.
//     node client.js HOST:PORT PREFIX
'use strict';
const { Producer, SimpleConsumer } = require('rocketmq-client-nodejs');

const [endpoints, prefix] = process.argv.slice(2);
const logger = { info() {}, warn() {}, error() {}, debug() {} };
const at = { endpoints, namespace: '', logger, requestTimeout: 10000 };
const show = (what, found) => console.log(JSON.stringify([what, found]));
const message = (topic, body, more = {}) => ({ topic: prefix + topic, body: Buffer.from(body), ...more });

const seen = one => ({
  topic: one.topic,
  body: one.body.toString(),
  tag: one.tag,
  keys: one.keys,
  properties: Object.fromEntries([...one.properties].filter(([name]) => name !== '__transactionId__').sort()),
  group: one.messageGroup,
  attempt: one.deliveryAttempt,
  corrupted: one.corrupted,
});

async function failing(call) {
  try {
    await call();
    return 'OK';
  } catch (error) {
    return [error.name, error.code];
  }
}

async function consuming(group, topic, filter, work) {
  const consumer = new SimpleConsumer({
    ...at, consumerGroup: prefix + group, subscriptions: new Map([[prefix + topic, filter]]), awaitDuration: 5000,
  });
  await consumer.startup();
  try {
    await work(consumer);
  } finally {
    await consumer.shutdown();
  }
}

async function take(consumer, count, invisible = 60000, acks = true) {
  const found = [];
  const end = Date.now() + 60000;
  while (found.length < count && Date.now() < end) {
    for (const one of await consumer.receive(count - found.length, invisible)) {
      if (acks) await consumer.ack(one);
      found.push(one);
    }
  }
  return found;
}

const sorted = found => found.map(seen).sort((a, b) => (a.body < b.body ? -1 : 1));

async function main() {
  const asked = new Set();
  const checker = {
    async check(view) {
      asked.add(view.body.toString());
      return 1; // COMMIT
    },
  };
  const producer = new Producer({ ...at, topic: [prefix + 'plain', prefix + 'tx'], checker });
  await producer.startup();

  await producer.send(message('plain', 'plain'));
  await producer.send(message('plain', 'all', { tag: 'a', keys: ['k1', 'k2'], properties: new Map([['p', 'q']]) }));
  await consuming('g-all', 'plain', '*', async consumer => {
    show('received', sorted(await take(consumer, 2)));
    show('acknowledged', (await consumer.receive(16, 60000)).length);
  });
  await consuming('g-tags', 'plain', 'a || c', async consumer => show('by tag', sorted(await take(consumer, 1))));

  for (const body of ['0', '1', '2']) await producer.send(message('fifo', body, { messageGroup: 'm' }));
  await consuming('g-fifo', 'fifo', '*', async consumer => show('in order', (await take(consumer, 3)).map(seen)));

  await producer.send(message('seen', 'again'));
  await consuming('g-invisible', 'seen', '*', async consumer => {
    const [first] = await take(consumer, 1, 10000, false);
    await consumer.changeInvisibleDuration(first, 15000);
    show('comes again', sorted(await take(consumer, 1)));
    show('old handle', await failing(() => consumer.ack(first)));
  });

  await producer.send(message('delay', 'later', { deliveryTimestamp: new Date(Date.now() + 4000) }));
  const receipt = await producer.send(message('delay', 'recalled', { deliveryTimestamp: new Date(Date.now() + 4000) }));
  show('recall', await failing(() => producer.recallMessage(prefix + 'delay', receipt.recallHandle)));
  await consuming('g-delay', 'delay', '*', async consumer => {
    show('delayed', sorted(await take(consumer, 1)));
    show('recalled', (await consumer.receive(16, 60000)).length);
  });

  for (const body of ['commit', 'rollback', 'orphan']) {
    const transaction = producer.beginTransaction();
    await producer.send(message('tx', body), transaction);
    if (body === 'commit') await transaction.commit();
    if (body === 'rollback') await transaction.rollback();
  }
  await consuming('g-tx', 'tx', '*', async consumer => show('committed', sorted(await take(consumer, 2))));
  show('asked for', [...asked]);

  show('unknown topic', await failing(() => producer.send(message('nowhere', 'x'))));
  show('wrong type', await failing(() => producer.send(message('plain', 'x', { messageGroup: 'm' }))));
  show('too far', await failing(() => producer.send(message('delay', 'x', { deliveryTimestamp: new Date(Date.now() + 1e9) }))));
  await producer.shutdown();
  process.exit(0);
}

main().catch(error => {
  console.error(error);
  process.exit(1);
});
