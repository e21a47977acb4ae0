// Loaded before the suite: it waits eight times as long for everything. What it checks stays.
const wait = globalThis.setTimeout;
globalThis.setTimeout = (then, after, ...more) => wait(then, 8 * (after || 0), ...more);
globalThis.setTimeout.__proto__ = wait;
