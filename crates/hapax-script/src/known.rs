//! Tables of the language's own functions and globals, by what they do.
//!
//! A name that is missing here costs a false alarm. A name that is wrong here costs a silent
//! change, so the tables list nothing that could write to its arguments.

/// Methods of strings, numbers, arrays, maps and sets that return a primitive value.
const ANSWERS: &[&str] = &[
    "charAt",
    "charCodeAt",
    "codePointAt",
    "endsWith",
    "every",
    "findIndex",
    "findLastIndex",
    "forEach",
    "getTime",
    "has",
    "includes",
    "indexOf",
    "join",
    "lastIndexOf",
    "localeCompare",
    "normalize",
    "padEnd",
    "padStart",
    "repeat",
    "replace",
    "replaceAll",
    "search",
    "some",
    "startsWith",
    "substring",
    "toFixed",
    "toISOString",
    "toLocaleLowerCase",
    "toLocaleUpperCase",
    "toLowerCase",
    "toString",
    "toUpperCase",
    "trim",
    "trimEnd",
    "trimStart",
];

/// Methods that return parts of the object they are called on.
const PARTS: &[&str] = &[
    "at",
    "catch",
    "entries",
    "finally",
    "find",
    "findLast",
    "flat",
    "flatMap",
    "get",
    "keys",
    "map",
    "match",
    "matchAll",
    "reduce",
    "reduceRight",
    "split",
    "then",
    "values",
];

/// Methods that return a new container of the same parts.
const COPIES: &[&str] =
    &["concat", "filter", "slice", "toReversed", "toSorted", "toSpliced", "with"];

/// Methods that write to a container, but not to its contents.
const CONTAINER: &[&str] = &[
    "add",
    "clear",
    "copyWithin",
    "delete",
    "fill",
    "pop",
    "push",
    "reverse",
    "set",
    "shift",
    "sort",
    "splice",
    "unshift",
];

/// Methods that hand each element to a function, as its first argument.
const EACH: &[&str] = &[
    "every",
    "filter",
    "find",
    "findIndex",
    "findLast",
    "findLastIndex",
    "flatMap",
    "forEach",
    "map",
    "some",
];

/// Functions and constructors whose result shares nothing writable with their arguments.
const PURE: &[&str] = &[
    "BigInt",
    "Boolean",
    "Date",
    "Error",
    "Number",
    "RangeError",
    "RegExp",
    "String",
    "TypeError",
    "URL",
    "URLSearchParams",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "structuredClone",
    "Array.isArray",
    "JSON.parse",
    "JSON.stringify",
    "Object.is",
    "Object.keys",
];

/// Functions and constructors whose result holds their arguments.
const HOLDING: &[&str] = &[
    "Array",
    "Map",
    "Set",
    "Array.of",
    "Object.entries",
    "Object.freeze",
    "Object.fromEntries",
    "Object.values",
    "Promise.all",
    "Promise.allSettled",
    "Promise.any",
    "Promise.race",
    "Promise.resolve",
];

/// Objects of the language whose functions all count as pure.
const PURE_OBJECTS: &[&str] = &["Date", "Math", "Number", "String", "console"];

/// Globals of the language that a script may start to use.
const STANDARD: &[&str] = &[
    "Array",
    "ArrayBuffer",
    "BigInt",
    "Boolean",
    "DataView",
    "Date",
    "Error",
    "EvalError",
    "Infinity",
    "Intl",
    "JSON",
    "Map",
    "Math",
    "NaN",
    "Number",
    "Object",
    "Promise",
    "RangeError",
    "ReferenceError",
    "RegExp",
    "Set",
    "String",
    "Symbol",
    "SyntaxError",
    "TextDecoder",
    "TextEncoder",
    "TypeError",
    "URIError",
    "URL",
    "URLSearchParams",
    "Uint8Array",
    "WeakMap",
    "WeakSet",
    "atob",
    "btoa",
    "console",
    "decodeURI",
    "decodeURIComponent",
    "encodeURI",
    "encodeURIComponent",
    "isFinite",
    "isNaN",
    "parseFloat",
    "parseInt",
    "structuredClone",
    "undefined",
];

/// Globals with which a script can reach everything, or make code out of text.
const MASTER_KEYS: &[&str] = &[
    "Function",
    "Proxy",
    "Reflect",
    "WebAssembly",
    "arguments",
    "eval",
    "global",
    "globalThis",
    "require",
    "self",
    "window",
];

/// Properties through which one object changes the behaviour of others.
const BACK_DOORS: &[&str] = &[
    "__defineGetter__",
    "__defineSetter__",
    "__lookupGetter__",
    "__lookupSetter__",
    "__proto__",
    "constructor",
    "defineProperties",
    "defineProperty",
    "getPrototypeOf",
    "prototype",
    "setPrototypeOf",
];

pub(crate) fn answers(method: &str) -> bool {
    ANSWERS.contains(&method)
}

pub(crate) fn parts(method: &str) -> bool {
    PARTS.contains(&method)
}

pub(crate) fn copies(method: &str) -> bool {
    COPIES.contains(&method)
}

/// Whether a method writes to nothing at all.
pub(crate) fn harmless(method: &str) -> bool {
    answers(method) || parts(method) || copies(method)
}

pub(crate) fn container(method: &str) -> bool {
    CONTAINER.contains(&method)
}

pub(crate) fn each(method: &str) -> bool {
    EACH.contains(&method)
}

/// Methods that call a function they are given.
pub(crate) fn calls_back(method: &str) -> bool {
    let others = ["catch", "finally", "reduce", "reduceRight", "sort", "then", "toSorted"];
    each(method) || others.contains(&method)
}

/// `function` is a name, or an object and a name with a dot between.
pub(crate) fn pure(function: &str) -> bool {
    let object = function.split_once('.').map(|(object, _)| object);
    PURE.contains(&function) || object.is_some_and(|object| PURE_OBJECTS.contains(&object))
}

pub(crate) fn holding(function: &str) -> bool {
    HOLDING.contains(&function)
}

pub(crate) fn standard(global: &str) -> bool {
    STANDARD.contains(&global)
}

pub(crate) fn master_key(global: &str) -> bool {
    MASTER_KEYS.contains(&global)
}

pub(crate) fn back_door(property: &str) -> bool {
    BACK_DOORS.contains(&property)
}
