// The actions that users can apply to volumes. Each action has a dialog that describes its effect, and asks for its
// input.

import type { Volume } from '../api/types';
import { keptBecause } from '../lib/volume';

export type VolumeAction = 'attach' | 'detach' | 'expand' | 'cancelExpansion' | 'updateReplicaCount' | 'updateDataLocality' | 'updateAccessMode' | 'trimFilesystem' | 'salvage' | 'delete';

export interface ActionInfo {
  id: VolumeAction;
  name: string;
  // many: the action makes sense for several volumes at once.
  many: boolean;
  danger?: boolean;
  // fits returns whether users expect the action in the state of the volume. The API must offer the action as well.
  fits: (v: Volume) => boolean;
}

export const actions: readonly ActionInfo[] = [
  { id: 'attach', name: 'Attach …', many: false, fits: (v) => v.state === 'detached' },
  { id: 'detach', name: 'Detach …', many: true, fits: (v) => v.state === 'attached' || v.state === 'attaching' },
  { id: 'expand', name: 'Expand …', many: false, fits: () => true },
  { id: 'cancelExpansion', name: 'Cancel the expansion …', many: false, fits: (v) => v.expansionRequired === true },
  { id: 'updateReplicaCount', name: 'Number of replicas …', many: true, fits: () => true },
  { id: 'updateDataLocality', name: 'Data locality …', many: true, fits: () => true },
  { id: 'updateAccessMode', name: 'Access mode …', many: true, fits: (v) => v.state === 'detached' },
  { id: 'trimFilesystem', name: 'Trim the file system …', many: false, fits: () => true },
  { id: 'salvage', name: 'Salvage …', many: false, danger: true, fits: () => true },
  { id: 'delete', name: 'Delete …', many: true, danger: true, fits: () => true },
];

// actionsOf returns the actions that the API offers for a volume and that fit its state. Deletion is always included.
export function actionsOf(v: Volume): ActionInfo[] {
  return actions.filter((a) => (a.id === 'delete' || v.actions[a.id] !== undefined) && a.fits(v));
}

// obstacleTo returns the reason why an offered action is not possible now. It is empty if the action is possible.
export function obstacleTo(action: VolumeAction, v: Volume): string {
  const kept = action === 'delete' ? keptBecause(v) : '';
  return kept === '' ? '' : `Not possible now: ${kept}`;
}
