import { useState } from 'react';
import { useChange } from '../../api/live';
import type { Node } from '../../api/types';
import { CheckboxField } from '../../components/CheckboxField';
import { fieldError, FormDialog } from '../../components/FormDialog';
import { TextInput } from '../../components/TextInput';
import { tagsOf } from '../../lib/tags';

// NodeDialog changes what people ask of a node.
export function NodeDialog({ node, onClose }: { node: Node; onClose: () => void }) {
  const [tags, setTags] = useState((node.tags ?? []).join(', '));
  const [allowScheduling, setAllow] = useState(node.allowScheduling);
  const [evictionRequested, setEvict] = useState(node.evictionRequested);
  const change = useChange('nodes');
  const submit = () =>
    change.mutate({ method: 'PUT', link: node.links['self'] ?? `/v1/nodes/${encodeURIComponent(node.name)}`, body: { allowScheduling, evictionRequested, tags: tagsOf(tags) } }, { onSuccess: onClose });
  return (
    <FormDialog title={`Node ${node.name}`} submit="Change" onClose={onClose} onSubmit={submit} isPending={change.isPending} error={change.error} fields={['tags']}>
      <TextInput label="Tags" value={tags} onChange={setTags} error={fieldError(change.error, 'tags')} description="Separated by commas" />
      <CheckboxField isSelected={allowScheduling} onChange={setAllow}>
        New replicas may be placed here
      </CheckboxField>
      <CheckboxField
        isSelected={evictionRequested}
        onChange={(on) => {
          setEvict(on);
          if (on) setAllow(false); // what is emptied must get nothing new
        }}
      >
        Empty it: its replicas move to other nodes
      </CheckboxField>
    </FormDialog>
  );
}
