import { useState } from 'react';
import { fieldError, FormDialog } from '../components/FormDialog';
import { TextInput } from '../components/TextInput';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './VolumeActionDialog';

export function ReplicaCountDialog({ volumes, onClose }: ActionProps) {
  const [count, setCount] = useState(String(volumes[0]?.numberOfReplicas ?? 3));
  const wanted = Number(count);
  const isNumber = /^\d+$/.test(count.trim());
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'updateReplicaCount'), body: { replicaCount: wanted } }));
  const fewer = isNumber && volumes.some((v) => v.numberOfReplicas > wanted);
  return (
    <FormDialog
      title={`Replicas of ${those(volumes)}`}
      submit="Change"
      onClose={onClose}
      onSubmit={() => change.mutate(undefined, { onSuccess: onClose })}
      isPending={change.isPending}
      isDisabled={!isNumber || volumes.every((v) => v.numberOfReplicas === wanted)}
      error={change.error}
      fields={['replicaCount', 'numberOfReplicas']}
    >
      <TextInput
        label="Number of replicas"
        value={count}
        onChange={setCount}
        inputMode="numeric"
        takesFocus
        error={isNumber || count === '' ? (fieldError(change.error, 'replicaCount') ?? fieldError(change.error, 'numberOfReplicas')) : 'must be a whole number'}
      />
      {fewer && <p>Replicas beyond this number are removed, and their disks freed, once enough good ones are left.</p>}
    </FormDialog>
  );
}
