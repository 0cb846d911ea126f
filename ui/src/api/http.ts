// One function for all requests to the REST API: JSON in, JSON out, and an error with the text of the API.

// ApiError is an answer with an error status, or a missing answer (status 0).
export class ApiError extends Error {
  readonly status: number;
  readonly code: string;
  readonly detail: string;

  constructor(status: number, code: string, message: string, detail = '') {
    super(message);
    this.name = 'ApiError';
    this.status = status;
    this.code = code;
    this.detail = detail;
  }

  // field is the field that the API's text names first, as in "size: must be ...". It is empty if the text names no
  // field.
  get field(): string {
    return /^([A-Za-z][A-Za-z0-9]*)(?:[.[][^:]*)?: /.exec(this.message)?.[1] ?? '';
  }
}

// shown is the number of characters that are shown of an answer that does not come from the API.
const shown = 300;

// errorFrom reads the body of a refusal. A proxy between the page and the API may have sent a body that is not JSON.
export function errorFrom(status: number, statusText: string, body: string): ApiError {
  try {
    const parsed: unknown = JSON.parse(body);
    if (typeof parsed === 'object' && parsed !== null && 'message' in parsed && typeof parsed.message === 'string') {
      const code = 'code' in parsed && typeof parsed.code === 'string' ? parsed.code : statusText;
      const detail = 'detail' in parsed && typeof parsed.detail === 'string' ? parsed.detail : '';
      return new ApiError(status, code, parsed.message, detail);
    }
  } catch {
    // The body is not JSON: it is shown unchanged.
  }
  const text = body.trim().slice(0, shown);
  return new ApiError(status, statusText, text !== '' && !text.startsWith('<') ? text : `the API answered ${status} ${statusText}`);
}

// pathOf turns a link of the API into a path on this server. The host in the link is the host under which the API
// believes it was called.
export function pathOf(link: string): string {
  const url = new URL(link, 'http://here');
  return url.pathname + url.search;
}

// onUnauthorized is called when the API says that no user is logged in.
let onUnauthorized: () => void = () => undefined;

export function setOnUnauthorized(call: () => void): void {
  onUnauthorized = call;
}

export type Method = 'GET' | 'POST' | 'PUT' | 'DELETE';

// request throws an ApiError unless the request succeeds. For an empty answer, it returns undefined.
export async function request<T>(method: Method, link: string, body?: unknown, signal?: AbortSignal): Promise<T> {
  const headers: Record<string, string> = { Accept: 'application/json' };
  const init: RequestInit = { method, headers, credentials: 'same-origin', signal: signal ?? null };
  if (body !== undefined) {
    headers['Content-Type'] = 'application/json';
    init.body = JSON.stringify(body);
  }
  let response: Response;
  let text: string;
  try {
    response = await fetch(pathOf(link), init);
    text = await response.text();
  } catch (cause) {
    if (signal?.aborted) throw cause;
    throw new ApiError(0, 'No answer', 'the API cannot be reached; it is unknown whether the request took effect');
  }
  if (!response.ok) {
    if (response.status === 401 && pathOf(link) !== '/v1/login') onUnauthorized();
    throw errorFrom(response.status, response.statusText, text);
  }
  if (text === '') return undefined as T;
  try {
    return JSON.parse(text) as T;
  } catch {
    throw new ApiError(response.status, 'Unexpected answer', 'the answer does not come from the API, but for example from the login page of a proxy; reload the page', text.trim().slice(0, shown));
  }
}
