// The user of the session.

import type { Session } from '../api/types';

// lastUser returns the user of the session. If the session ended without a logout, it returns the user of the previous
// session. A logout drops the previous session before the page reads the session again.
export function lastUser(before: string, session: Session | undefined): string {
  if (session === undefined) return '';
  return session.user === '' ? before : session.user;
}
