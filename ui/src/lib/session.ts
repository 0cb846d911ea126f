// What is concluded from the session.

import type { Session } from '../api/types';

// lastUser is the user of the session, or the user of the one before if that ended without a logout. A logout forgets the session before the
// page reads it again.
export function lastUser(before: string, session: Session | undefined): string {
  if (session === undefined) return '';
  return session.user === '' ? before : session.user;
}
