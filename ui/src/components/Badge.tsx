import type { ReactNode } from 'react';

import type { Tone } from '../lib/tone';

// The shapes differ as well as the colours, for users who cannot distinguish the colours.
const marks: Record<Tone, string> = { good: '●', warn: '▲', bad: '■', busy: '◐', idle: '○' };

export function Badge({ tone, children }: { tone: Tone; children: ReactNode }) {
  return (
    <span className={`badge ${tone}`}>
      <span aria-hidden="true">{marks[tone]}</span> {children}
    </span>
  );
}
