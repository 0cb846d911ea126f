import { useState } from 'react';
import { useChange } from '../../api/live';
import type { Disk, Node } from '../../api/types';
import { CheckboxField } from '../../components/CheckboxField';
import { FormDialog } from '../../components/FormDialog';
import { SizeInput } from '../../components/SizeInput';
import { TextInput } from '../../components/TextInput';
import { disksWith, suggestedName } from '../../lib/node';
import { parseSize } from '../../lib/size';
import { tagsOf } from '../../lib/tags';

interface Props {
  node: Node;
  // name and disk of the one to change; without them a disk is added.
  name?: string;
  disk?: Disk;
  onClose: () => void;
}

export function DiskDialog({ node, name: existing, disk, onClose }: Props) {
  const [name, setName] = useState(() => existing ?? suggestedName(Object.keys(node.disks ?? {})));
  const [path, setPath] = useState(disk?.path ?? '');
  const [reserved, setReserved] = useState(String(disk?.storageReserved ?? 0));
  const [tags, setTags] = useState((disk?.tags ?? []).join(', '));
  const [allowScheduling, setAllow] = useState(disk?.allowScheduling ?? true);
  const [evictionRequested, setEvict] = useState(disk?.evictionRequested ?? false);
  const change = useChange('nodes');
  const parsed = reserved.trim() === '0' || reserved.trim() === '' ? { bytes: 0 } : parseSize(reserved);
  const isTaken = existing === undefined && Object.keys(node.disks ?? {}).includes(name.trim());
  const submit = () => {
    if ('error' in parsed) return;
    const wanted = { path: path.trim(), diskType: disk?.diskType ?? 'filesystem', diskDriver: disk?.diskDriver ?? '', allowScheduling, evictionRequested, storageReserved: parsed.bytes, tags: tagsOf(tags) };
    const link = node.actions['diskUpdate'] ?? `/v1/nodes/${encodeURIComponent(node.name)}?action=diskUpdate`;
    change.mutate({ method: 'POST', link, body: { disks: disksWith(node, name.trim(), wanted) } }, { onSuccess: onClose });
  };
  // The API names a disk's fields as disks.<name>.<field>.
  const error = (part: string) => (change.error?.field === 'disks' && change.error.message.includes(`.${part}`) ? change.error.message : undefined);
  const isAtField = ['path', 'tags', 'storageReserved'].some((part) => error(part) !== undefined);
  return (
    <FormDialog
      title={existing === undefined ? `Add a disk to ${node.name}` : `Disk ${existing} of ${node.name}`}
      submit={existing === undefined ? 'Add' : 'Change'}
      onClose={onClose}
      onSubmit={submit}
      isPending={change.isPending}
      isDisabled={name.trim() === '' || path.trim() === '' || 'error' in parsed || isTaken}
      error={change.error}
      fields={isAtField ? ['disks'] : []}
    >
      <TextInput label="Name" value={name} onChange={setName} isDisabled={existing !== undefined} error={isTaken ? 'the node has a disk of this name' : undefined} />
      <TextInput
        label="Path"
        value={path}
        onChange={setPath}
        isDisabled={existing !== undefined}
        error={error('path')}
        description="A directory on the node, on a file system of its own"
        takesFocus={existing === undefined}
        isRequired
      />
      <SizeInput label="Reserved for others" value={reserved} onChange={setReserved} error={error('storageReserved')} />
      <TextInput label="Tags" value={tags} onChange={setTags} error={error('tags')} description="Separated by commas" />
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
        Empty it: its replicas move to other disks
      </CheckboxField>
    </FormDialog>
  );
}
