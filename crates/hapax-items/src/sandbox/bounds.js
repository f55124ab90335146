// Bounds the loops within the engine. Runs before the script, once.
//
// The engine checks whether the run is over at the calls and loops of the script, not within its
// own. So those of its own loops that a script can make endless are bounded here, and the long ones
// check before they start. They use operators and copies only, as scripts may change any prototype.
(function (tick) {
  'use strict';
  const { apply } = Reflect;
  const { isArray } = Array;
  const { map } = Array.prototype;
  const { defineProperty } = Object;
  const TooLong = RangeError;
  const Mistake = TypeError;

  const weigh = (size) => {
    if (size > 2 ** 12) tick();
    if (size > 2 ** 26) throw new TooLong('too long for one step');
  };
  const replace = (object, name, make) => {
    const native = object[name];
    const method = make(native);
    defineProperty(method, 'name', { value: name });
    defineProperty(method, 'length', { value: native.length });
    defineProperty(object, name, { value: method });
  };

  // Arrays can be long without being large, and so can whatever has a length.
  const weighList = (list) => {
    if (list !== undefined && list !== null && typeof list !== 'string') weigh(list.length);
  };
  for (const name of ['copyWithin', 'fill', 'join', 'reverse', 'shift', 'slice', 'splice',
    'toLocaleString', 'toReversed', 'toSpliced', 'unshift', 'with']) {
    replace(Array.prototype, name, (native) => ({ method(...given) {
      weighList(this);
      return apply(native, this, given);
    } }).method);
  }
  replace(Array.prototype, 'concat', (native) => ({ method(...given) {
    weighList(this);
    for (let at = 0; at < given.length; at++) weighList(given[at]);
    return apply(native, this, given);
  } }).method);

  const flatten = (into, list, depth) => {
    for (let at = 0; at < list.length; at++) {
      if (!(at in list)) continue;
      const value = list[at];
      if (depth > 0 && isArray(value)) {
        flatten(into, value, depth - 1);
      } else {
        const slot = { __proto__: null, value, writable: true, enumerable: true, configurable: true };
        defineProperty(into, into.length, slot);
      }
    }
    return into;
  };
  replace(Array.prototype, 'flat', () => ({ method(depth = 1) {
    return flatten([], this, +depth || 0);
  } }).method);
  replace(Array.prototype, 'flatMap', () => ({ method(callback, self) {
    return flatten([], apply(map, this, [callback, self]), 1);
  } }).method);

  // Comparing long strings takes long. A function that compares is a call, where the engine checks.
  const byText = (a, b) => {
    const left = `${a}`;
    const right = `${b}`;
    return left < right ? -1 : left > right ? 1 : 0;
  };
  for (const name of ['sort', 'toSorted']) {
    replace(Array.prototype, name, (native) => ({ method(compare) {
      weighList(this);
      return apply(native, this, [compare === undefined ? byText : compare]);
    } }).method);
  }

  // A string is looked for at every place of another.
  const weighSearch = (text, pattern) => {
    if (text.length > 2 ** 12) tick();
    if (text.length * pattern.length > 2 ** 34) throw new TooLong('too long for one step');
  };
  for (const name of ['includes', 'indexOf', 'lastIndexOf']) {
    replace(String.prototype, name, (native) => ({ method(pattern, from) {
      if (this === undefined || this === null) throw new Mistake(`${name} of ${this}`);
      const text = `${this}`;
      const part = `${pattern}`;
      weighSearch(text, part);
      return apply(native, text, [part, from]);
    } }).method);
  }
  for (const [name, symbol] of [['split', Symbol.split], ['replace', Symbol.replace],
    ['replaceAll', Symbol.replace]]) {
    replace(String.prototype, name, (native) => ({ method(pattern, other) {
      if (this === undefined || this === null) throw new Mistake(`${name} of ${this}`);
      if (pattern === undefined) return apply(native, this, [pattern, other]);
      if (typeof pattern === 'object' && pattern !== null) {
        const own = pattern[symbol];
        if (own !== undefined && own !== null) {
          // Without the flag it would replace the first one only.
          if (name === 'replaceAll' && typeof pattern.flags === 'string' && !pattern.global) {
            throw new Mistake('replaceAll of an expression that is not global');
          }
          return apply(own, pattern, [this, other]);
        }
      }
      const text = `${this}`;
      const part = `${pattern}`;
      weighSearch(text, part);
      return apply(native, text, [part, other]);
    } }).method);
  }

  for (const name of ['parse', 'stringify']) {
    replace(JSON, name, (native) => ({ method(...given) {
      tick();
      return apply(native, this, given);
    } }).method);
  }
})
