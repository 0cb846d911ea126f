import { useState } from 'react';
import { CheckboxField } from '../components/CheckboxField';
import { ConfirmName, confirmation } from '../components/ConfirmName';
import { fullNameOf } from '../lib/names';
import { isInUse, podsOf } from '../lib/volume';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

// DetachDialog drops the manual ticket of a volume. It drops all tickets, including those of running pods, only if the
// user selects that.
export function DetachDialog({ volumes, onClose }: ActionProps) {
  const [force, setForce] = useState(false);
  const [typed, setTyped] = useState('');
  const wanted = confirmation('detach', volumes.map((v) => v.name));
  const used = volumes.filter(isInUse);
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'detach'), body: force ? { forceDetach: true } : { attachmentID: '' } }));
  return (
    <ChangeForm
      change={change}
      title={`Detach ${those(volumes)}`}
      submit={force ? 'Force detach' : 'Detach'}
      danger={force}
      onClose={onClose}
      isDisabled={force && typed !== wanted}
    >
      <p>This cancels the manual attachment. A volume that pods use stays attached for them.</p>
      {used.map((v) => (
        <p key={v.name} className="warning">
          {fullNameOf(v)} is used by {podsOf(v).join(', ')}.
        </p>
      ))}
      <CheckboxField isSelected={force} onChange={setForce}>
        Force detach from all users, including pods: data that they have not written yet is lost
      </CheckboxField>
      {force && <ConfirmName wanted={wanted} value={typed} onChange={setTyped} />}
    </ChangeForm>
  );
}
