/**
 * The functions and tools of automation scripts.
 *
 * A script is one ES module. `await` works at its top level; `import` does not. There are no
 * timers, no files, no network and no code from text: what a script does to the world, it does by
 * its tools.
 *
 * The run ends at once, and no `try`, `catch` or `finally` hears of it, when
 * - the host stops it,
 * - a handler throws or rejects, or a rejected promise is not handled,
 * - `withItem` is called with something else than the types below say,
 * - a limit is reached: time, memory, stack, number of calls, size of one message.
 *
 * Tool calls go out when the script yields, in the order in which they were made.
 */

/** Any JSON value. Functions and symbols are refused, anywhere in it. */
type Json = null | boolean | number | string | Json[] | { [key: string]: Json | undefined };

/**
 * Processes one item: one invoice, one customer, one message.
 *
 * One item is open at a time. Calls made at the same time (`Promise.all`) wait for their turn, in
 * the order of the calls. The item is over when the handler is, together with all that it has
 * left running without waiting for it.
 *
 * Never `await` one `withItem` within the handler of another: it would wait for itself.
 *
 * The handler also runs for an item that is done. Begin it with `if (ctx.item.isDone) return;`: a
 * change for an item that is done ends the run as a mistake of the script's.
 *
 * @param id      Says which item it is, the same in every run: 1 to 512 bytes.
 * @param title   Shown to people: up to 512 bytes.
 * @param handler Does the work. Its return value must be JSON.
 * @returns       What the handler returned, as it came out of JSON (`undefined` as `null`).
 *
 * @example
 * for (const invoice of await sql.query({ sql: "SELECT id, email FROM due" })) {
 *   await withItem(`invoice-${invoice.id}`, `Invoice ${invoice.id}`, async (ctx) => {
 *     if (ctx.item.isDone) return;
 *     await email.send({ to: invoice.email, subject: "A reminder", text: "…" });
 *   });
 * }
 */
declare function withItem<T extends Json | void>(
  id: string,
  title: string,
  handler: (ctx: ItemContext) => T | Promise<T>,
): Promise<T extends void ? null : T>;

/** What a handler is told. Frozen. */
interface ItemContext {
  readonly item: {
    /** As given to `withItem`. */
    readonly id: string;
    /** As given to `withItem`. */
    readonly title: string;
    /** Whether nothing is left to do: the item is done, or a person let it go. */
    readonly isDone: boolean;
    /** Which attempt this is, from 1 on. */
    readonly attempt: number;
  };
}

/**
 * Writes a line to the log of the run. Strings are shown as they are, errors with their name and
 * message, everything else as JSON. Each line counts as a call.
 */
declare const console: {
  log(...values: unknown[]): void;
  info(...values: unknown[]): void;
  warn(...values: unknown[]): void;
  error(...values: unknown[]): void;
};

/*
 * `Date.now()` and `new Date()` show one time within an item and one outside, and `Math.random()`
 * starts anew in each item: a script that runs again sees the same.
 */

/**
 * For operations that change something: tells apart changes that would otherwise be the same one,
 * such as two reminders to one address in one item. The same in every run.
 */
interface Subkey {
  subkey?: string;
}
