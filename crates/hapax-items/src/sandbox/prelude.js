// Runs before the script, once, and makes a world of what the engine offers. Answers with the
// function that looks at values on their way into JSON.
//
// Scripts may change any prototype later. So what is needed then is taken now, and the functions
// that stay use operators and these copies only.
(function (now, random) {
  'use strict';
  const { construct } = Reflect;
  const Mistake = TypeError;

  const put = (object, name, value) =>
    Object.defineProperty(object, name, { value, writable: true, configurable: true });

  // No code from text, no shared memory, nothing that depends on when memory is freed. A microtask
  // that throws would be lost; a promise that does is not.
  for (const name of ['eval', 'Function', 'SharedArrayBuffer', 'Atomics', 'queueMicrotask']) {
    delete globalThis[name];
  }
  for (const sample of [() => {}, async () => {}, function* () {}, async function* () {}]) {
    delete Object.getPrototypeOf(sample).constructor;
  }

  // The clock stands where the host put it.
  const Native = Date;
  function Given(...parts) {
    if (new.target === undefined) return `${construct(Native, [now()])}`;
    return construct(Native, parts.length === 0 ? [now()] : parts, new.target);
  }
  put(Given, 'name', 'Date');
  put(Given, 'length', 7);
  put(Given, 'now', { now: () => now() }.now);
  put(Given, 'parse', Native.parse);
  put(Given, 'UTC', Native.UTC);
  Object.defineProperty(Given, 'prototype', { value: Native.prototype, writable: false });
  put(Native.prototype, 'constructor', Given);
  put(globalThis, 'Date', Given);
  put(Math, 'random', random);

  // The engine asks these when the script as a whole is over.
  Object.defineProperty(Promise, Symbol.species, { configurable: false });
  Object.defineProperty(Promise.prototype, 'constructor', { writable: false, configurable: false });

  // JSON leaves these out without a word. What a script hands over must arrive.
  return (_key, value) => {
    if (typeof value === 'function' || typeof value === 'symbol') {
      throw new Mistake(`a ${typeof value} is not a JSON value`);
    }
    return value;
  };
})
