import { describe, expect, it } from 'vitest';
import { ApiError } from './http';
import { isRefused, worstOf } from './live';

describe('worstOf', () => {
  it.each([
    [[], 'open'],
    [['open', 'open'], 'open'],
    [['open', 'connecting'], 'connecting'],
    [['connecting', 'lost'], 'lost'],
  ] as const)('%j → %s', (all, want) => expect(worstOf(all)).toBe(want));
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
