import { useState } from 'react';
import type { Replica } from '../api/types';
import { CheckboxField } from '../components/CheckboxField';
import { dateTime, timeOf } from '../lib/format';
import { placed } from '../lib/volume';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

// failed says when a replica failed. It is empty if the replica did not fail.
function failed(r: Replica): string {
  const at = timeOf(r.failedAt);
  return at === null ? '' : `, failed ${dateTime(at)}`;
}

// SalvageDialog starts a faulted volume from the replicas that the user selects. The API refuses a replica that is not
// known to have all data.
export function SalvageDialog({ volumes, onClose }: ActionProps) {
  const volume = volumes[0];
  const [names, setNames] = useState<string[]>([]);
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'salvage'), body: { names } }));
  return (
    <ChangeForm
      change={change}
      title={`Salvage ${those(volumes)}`}
      submit="Salvage"
      danger
      onClose={onClose}
      isDisabled={names.length === 0}
    >
      <p>The volume starts with the replicas that you select. The API refuses a replica that is not known to have all acknowledged writes, so no write is lost unnoticed.</p>
      <fieldset>
        <legend>Replicas</legend>
        {(volume ? placed(volume) : []).map((r) => (
          <CheckboxField key={r.name} isSelected={names.includes(r.name)} onChange={(on) => setNames(on ? [...names, r.name] : names.filter((n) => n !== r.name))}>
            {r.name} on {r.hostId}
            {failed(r)}
          </CheckboxField>
        ))}
      </fieldset>
    </ChangeForm>
  );
}
