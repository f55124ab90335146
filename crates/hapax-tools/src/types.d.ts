/*
 * The tools. Which of them there are, and what they are called, is up to the deployment. Say which
 * kind a name is: `declare const crm: HttpTool;`.
 *
 * Arguments have to be JSON. A tool that fails ends the run: there is no error to catch, except
 * for arguments that are no JSON.
 */

/** A web server. */
interface HttpTool {
  /** Reads. Is done again in each attempt. */
  get(request: HttpRead): Promise<HttpResponse>;
  /** Reads the headers only. */
  head(request: HttpRead): Promise<HttpResponse>;
  /** Changes something, once per item, URL and subkey. */
  post(request: HttpWrite): Promise<HttpResponse>;
  /** Changes something, once per item, URL and subkey. */
  put(request: HttpWrite): Promise<HttpResponse>;
  /** Changes something, once per item, URL and subkey. */
  patch(request: HttpWrite): Promise<HttpResponse>;
  /** Removes something, once per item, URL and subkey. */
  delete(request: HttpWrite): Promise<HttpResponse>;
  /** Any other method, sent as it is written; once per item, method, URL and subkey. */
  request(request: HttpWrite & { method: string }): Promise<HttpResponse>;
}

interface HttpRead {
  url: string;
  headers?: Record<string, string>;
}

interface HttpWrite extends HttpRead, Subkey {
  /** A string is sent as it is, everything else as JSON. */
  body?: Json;
}

type HttpResponse = {
  status: number;
  headers: Record<string, string>;
  /** Parsed, if the server says that it is JSON. */
  body: Json;
  /** If the body is no text: how it is written. */
  encoding?: "base64";
};

/** Outgoing mail. */
interface EmailTool {
  /** Sends a mail, once per item, recipients and subkey. */
  send(mail: Email): Promise<Json>;
}

interface Email extends Subkey {
  to: string | string[];
  cc?: string | string[];
  subject: string;
  text: string;
  /** The same as `text`, for those who can show it. */
  html?: string;
}

/** A database. */
interface SqlTool {
  /** Reads. Is done again in each attempt. */
  query(query: SqlStatement): Promise<Record<string, Json>[]>;
  /** Executes all statements in one transaction, once per item, id and subkey. */
  execute(change: SqlChange): Promise<Json>;
}

interface SqlStatement {
  sql: string;
  /** For the placeholders, in their order. */
  params?: Json[];
}

interface SqlChange extends Subkey {
  /** Says which change it is, within the item. */
  id: string;
  statements: SqlStatement[];
}

/** A directory. */
interface FileTool {
  /** Reads. Is done again in each attempt. */
  read(file: { path: string }): Promise<FileContent>;
  /** Writes the whole file, once per item, path and subkey. */
  write(file: { path: string; content: string } & Subkey): Promise<Json>;
  /** Removes the file, once per item, path and subkey. */
  remove(file: { path: string } & Subkey): Promise<Json>;
}

interface FileContent {
  path: string;
  /** In bytes. */
  size: number;
  content: string;
  /** If the content is no text: how it is written. */
  encoding?: "base64";
}

/** Somebody who wants to hear of events. */
interface WebhookTool {
  /** Sends an event, once per item, event and subkey. */
  send(event: { event: string; data?: Json } & Subkey): Promise<Json>;
}

/** Values that outlive a run, by their keys. */
interface KvTool {
  /** Reads. `null` for a key that there is none of. */
  get(entry: { key: string }): Promise<Json>;
  /** Sets a value, once per item, key and subkey. */
  set(entry: { key: string; value: Json } & Subkey): Promise<Json>;
  /** Removes a key, once per item and key. */
  remove(entry: { key: string } & Subkey): Promise<Json>;
}
