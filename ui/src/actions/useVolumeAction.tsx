import { useState, type ReactNode } from 'react';
import type { Volume } from '../api/types';
import { latest } from '../lib/volume';
import { VolumeActionDialog } from './VolumeActionDialog';
import type { VolumeAction } from './volumeActions';

export type Act = (action: VolumeAction, volumes: Volume[]) => void;

// useVolumeAction returns the function by which a page opens the dialog of an action, and the open dialog. The page
// holds the dialog, because a row or the view of a volume may disappear while the user fills in the form. live contains
// the volumes as the page knows them now.
export function useVolumeAction(live: readonly Volume[]): [Act, ReactNode] {
  const [open, setOpen] = useState<{ action: VolumeAction; volumes: Volume[] } | null>(null);
  const act: Act = (action, volumes) => setOpen({ action, volumes });
  return [act, open && <VolumeActionDialog action={open.action} volumes={latest(open.volumes, live)} onClose={() => setOpen(null)} />];
}
