import { describe, expect, it } from 'vitest';
import { lastUser } from './session';

describe('lastUser', () => {
  it.each([
    ['no session is read yet', '', undefined, ''],
    ['nobody was logged in', '', '', ''],
    ['a login', '', 'ann', 'ann'],
    ['the token expires', 'ann', '', 'ann'],
    ['another user logs in', 'ann', 'bob', 'bob'],
    ['a logout', 'ann', undefined, ''],
  ])('%s: after %j, %j → %j', (_, before, user, want) => expect(lastUser(before, user === undefined ? undefined : { user, trustedNetwork: false })).toBe(want));
});
