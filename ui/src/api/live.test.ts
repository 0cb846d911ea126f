import { describe, expect, it } from 'vitest';
import { ApiError } from './http';
import { isRefused, together, type Connection } from './live';

describe('together', () => {
  const open: Connection = { state: 'open', currentUntil: 7 };
  it.each<[Connection[], Connection]>([
    [[], { state: 'open', currentUntil: 0 }],
    [[open, open], { state: 'open', currentUntil: 0 }],
    [[open, { state: 'connecting', currentUntil: 0 }], { state: 'connecting', currentUntil: 0 }],
    [[{ state: 'lost', currentUntil: 20 }, open, { state: 'lost', currentUntil: 10 }], { state: 'lost', currentUntil: 10 }],
    [[{ state: 'connecting', currentUntil: 0 }, { state: 'lost', currentUntil: 10 }], { state: 'lost', currentUntil: 0 }],
  ])('%j → %j', (all, want) => expect(together(all)).toEqual(want));
});

describe('isRefused', () => {
  it.each([
    ['no right → yes', new ApiError(403, 'Forbidden', 'no right'), true],
    ['no leader → no', new ApiError(503, 'Service Unavailable', 'the leader is changing'), false],
    ['not logged in → no', new ApiError(401, 'Unauthorized', 'no token'), false],
    ['no answer → no', new ApiError(0, 'No answer', 'no'), false],
    ['something else → no', new Error('403'), false],
  ])('%s', (_, error, want) => expect(isRefused(error)).toBe(want));
});
