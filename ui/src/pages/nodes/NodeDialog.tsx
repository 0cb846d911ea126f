import { useState } from 'react';
import { changedMeanwhile, useNodeChange } from '../../api/nodeChange';
import type { Node, NodeUpdate } from '../../api/types';
import { fieldError, FormDialog } from '../../components/FormDialog';
import { TextInput } from '../../components/TextInput';
import { clashText, rebased } from '../../lib/node';
import { tagsOf, tagText } from '../../lib/tags';
import { SchedulingFields, type Scheduling } from './SchedulingFields';

// NodeDialog changes the values of a node that users set.
export function NodeDialog({ node, onClose }: { node: Node; onClose: () => void }) {
  const [base, setBase] = useState<NodeUpdate>(node); // the values that the user's changes start from
  const [tags, setTags] = useState(tagText(node.tags));
  const [scheduling, setScheduling] = useState<Scheduling>(node);
  const change = useNodeChange(node.name);
  const make = (now: Node) => {
    const { value, clashes } = rebased(base, { ...scheduling, tags: tagsOf(tags) }, now);
    if (clashes.length > 0) {
      setBase(now);
      setTags(tagText(value.tags));
      setScheduling(value);
      throw changedMeanwhile(clashText(node.name, now, clashes));
    }
    const { allowScheduling, evictionRequested } = value;
    return { node: { allowScheduling, evictionRequested, tags: value.tags } };
  };
  return (
    <FormDialog title={`Edit node ${node.name}`} submit="Save" onClose={onClose} onSubmit={() => change.mutate(make, { onSuccess: onClose })} isPending={change.isPending} error={change.error} fields={['tags']}>
      <TextInput label="Tags" value={tags} onChange={setTags} refusal={fieldError(change.error, 'tags')} description="Separated by commas" />
      <SchedulingFields value={scheduling} onChange={setScheduling} elsewhere="nodes" />
    </FormDialog>
  );
}
