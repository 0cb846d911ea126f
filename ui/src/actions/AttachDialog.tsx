import { useState } from 'react';
import { useCollection } from '../api/live';
import { fieldError } from '../components/FormDialog';
import { TextInput } from '../components/TextInput';
import { SelectField } from '../components/SelectField';
import { isTrue } from '../lib/capacity';
import { unreadableNodes } from '../lib/node';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

export function AttachDialog({ volumes, onClose }: ActionProps) {
  const nodes = useCollection('nodes');
  const options = (nodes.data ?? []).map((n) => [n.name, isTrue(n.conditions, 'Ready') ? n.name : `${n.name} (not ready)`] as const);
  const [chosen, setChosen] = useState('');
  const node = chosen === '' ? (options[0]?.[0] ?? '') : chosen;
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'attach'), body: { hostId: node, attachedBy: 'page' } }));
  const error = fieldError(change.mutation.error, 'hostId');
  return (
    <ChangeForm
      change={change}
      title={`Attach ${those(volumes)}`}
      submit="Attach"
      onClose={onClose}
      isDisabled={node === ''}
      fields={['hostId']}
    >
      <p>The volume becomes a block device on the node. Use this for maintenance: Kubernetes attaches the volumes of pods automatically.</p>
      {nodes.isError && nodes.data === undefined ? (
        <TextInput label="Node" value={chosen} onChange={setChosen} refusal={error} description={unreadableNodes(nodes.error)} isRequired />
      ) : (
        <SelectField label="Node" value={node} options={options} onChange={setChosen} error={error} />
      )}
    </ChangeForm>
  );
}
