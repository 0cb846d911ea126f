import { useState } from 'react';
import { fieldError } from '../components/FormDialog';
import { TextInput } from '../components/TextInput';
import { wholeNumber } from '../lib/format';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

export function ReplicaCountDialog({ volumes, onClose }: ActionProps) {
  const [count, setCount] = useState(String(volumes[0]?.numberOfReplicas ?? 3));
  const wanted = wholeNumber(count);
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'updateReplicaCount'), body: { replicaCount: wanted } }));
  const fewer = wanted !== null && volumes.some((v) => v.numberOfReplicas > wanted);
  return (
    <ChangeForm
      change={change}
      title={`Replicas of ${those(volumes)}`}
      submit="Save"
      onClose={onClose}
      isDisabled={wanted === null || volumes.every((v) => v.numberOfReplicas === wanted)}
      fields={['replicaCount', 'numberOfReplicas']}
    >
      <TextInput
        label="Number of replicas"
        value={count}
        onChange={setCount}
        inputMode="numeric"
        takesFocus
        error={wanted !== null || count === '' ? (fieldError(change.mutation.error, 'replicaCount') ?? fieldError(change.mutation.error, 'numberOfReplicas')) : 'must be a whole number'}
      />
      {fewer && <p>When a volume has enough healthy replicas, Longhorn deletes the surplus replicas and frees their disk space.</p>}
    </ChangeForm>
  );
}
