import { useState, type ReactNode } from 'react';
import type { Volume } from '../api/types';
import { latest } from '../lib/volume';
import { VolumeActionDialog } from './VolumeActionDialog';
import type { VolumeAction } from './volumeActions';

export type Act = (action: VolumeAction, volumes: Volume[]) => void;

// useVolumeAction is how a page opens the dialog of an action, and the dialog while there is one. The page holds it: a row, or the part that
// shows a volume, may go while people fill the form in. live is what the page knows of volumes now.
export function useVolumeAction(live: readonly Volume[]): [Act, ReactNode] {
  const [open, setOpen] = useState<{ action: VolumeAction; volumes: Volume[] } | null>(null);
  const act: Act = (action, volumes) => setOpen({ action, volumes });
  return [act, open && <VolumeActionDialog action={open.action} volumes={latest(open.volumes, live)} onClose={() => setOpen(null)} />];
}
