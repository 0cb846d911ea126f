import { useState } from 'react';
import { useLocation } from 'wouter';
import { ConfirmName, confirmation } from '../components/ConfirmName';
import { bytes, number } from '../lib/format';
import { fullNameOf } from '../lib/names';
import { actualSizeOf, claimText, isClaimGone, keptBecause, placed } from '../lib/volume';
import { ChangeForm } from './ChangeForm';
import { those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

// DeleteDialog describes the data that will be lost. The user types the name of the volume to confirm, or for several
// volumes their number.
export function DeleteDialog({ volumes, onClose }: ActionProps) {
  const [typed, setTyped] = useState('');
  const [, go] = useLocation();
  const wanted = confirmation('delete', volumes.map((v) => v.name));
  const kept = volumes.filter((v) => keptBecause(v) !== '');
  const change = useForEach(volumes, (v) => ({ method: 'DELETE', link: v.links['self'] ?? `/v1/volumes/${encodeURIComponent(v.name)}` }));
  const done = () => {
    onClose();
    go('/volumes');
  };
  return (
    <ChangeForm
      change={change}
      title={`Delete ${those(volumes)}`}
      submit="Delete permanently"
      danger
      onClose={onClose}
      onDone={done}
      isDisabled={typed !== wanted || kept.length > 0}
    >
      <p>Longhorn deletes all replicas from their disks. The data cannot be recovered:</p>
      <ul className="losses">
        {volumes.map((v) => (
          <li key={v.name}>
            <strong>{fullNameOf(v)}</strong>, {bytes(actualSizeOf(v))} of data in {placed(v).length === 1 ? '1 replica' : `${number(placed(v).length)} replicas`}
            {isClaimGone(v) && `, claim ${claimText(v)}`}
            {keptBecause(v) !== '' && <span className="field-error">, cannot be deleted now: {keptBecause(v)}</span>}
          </li>
        ))}
      </ul>
      {kept.length > 0 && (
        <p className="warning">Delete the pods that use a volume, then delete its claim: Longhorn deletes a volume of a StorageClass together with its claim. Detach a volume that was attached manually.</p>
      )}
      <ConfirmName wanted={wanted} value={typed} onChange={setTyped} />
    </ChangeForm>
  );
}
