import { useState } from 'react';
import { ApiError } from '../../api/http';
import { changedMeanwhile, useNodeChange } from '../../api/nodeChange';
import type { Disk, DiskUpdate, Node } from '../../api/types';
import { fieldError, FormDialog } from '../../components/FormDialog';
import { SizeInput, useSize } from '../../components/SizeInput';
import { TextInput } from '../../components/TextInput';
import { bytes } from '../../lib/format';
import { clashText, disksWith, rebased, suggestedName, wished } from '../../lib/node';
import { sizeText } from '../../lib/size';
import { tagsOf, tagText } from '../../lib/tags';
import { SchedulingFields, type Scheduling } from './SchedulingFields';

interface Props {
  node: Node;
  // name and disk are those of the disk to change. Without them, the dialog adds a disk.
  name?: string;
  disk?: Disk;
  onClose: () => void;
}

const newDisk: DiskUpdate = { path: '', diskType: 'filesystem', diskDriver: '', allowScheduling: true, evictionRequested: false, storageReserved: 0, tags: [] };
const nameTaken = 'the node already has a disk with this name';

export function DiskDialog({ node, name: existing, disk, onClose }: Props) {
  const [base, setBase] = useState<DiskUpdate>(disk ?? newDisk); // the values that the user's changes start from
  const [name, setName] = useState(() => existing ?? suggestedName(Object.keys(node.disks ?? {})));
  const [path, setPath] = useState(base.path);
  const reserved = useSize(sizeText(base.storageReserved), { least: 0 });
  const [tags, setTags] = useState(tagText(base.tags));
  const [scheduling, setScheduling] = useState<Scheduling>(base);
  const change = useNodeChange(node.name);
  const { parsed } = reserved;
  const isTaken = existing === undefined && Object.keys(node.disks ?? {}).includes(name.trim());

  const added = (now: Node, mine: DiskUpdate) => {
    if (now.disks?.[name.trim()] !== undefined) throw new ApiError(0, 'Conflict', `name: ${nameTaken}`);
    return { disks: disksWith(now, name.trim(), mine) };
  };
  const changed = (now: Node, mine: DiskUpdate) => {
    const there = now.disks?.[name];
    if (there?.path !== base.path) throw changedMeanwhile(`node ${node.name} no longer has disk ${name} at ${base.path}. Nothing was sent. Close this form and check the disks of the node.`);
    const { value, clashes } = rebased<DiskUpdate>(base, mine, there);
    if (clashes.length > 0) {
      setBase(there);
      reserved.setText(sizeText(value.storageReserved));
      setTags(tagText(value.tags));
      setScheduling(value);
      throw changedMeanwhile(clashText(name, there, clashes));
    }
    return { disks: disksWith(now, name, wished(value)) };
  };
  const submit = () => {
    if ('error' in parsed) return;
    const mine = wished({ ...base, ...scheduling, path: path.trim(), storageReserved: parsed.bytes, tags: tagsOf(tags) });
    change.mutate((now) => (existing === undefined ? added(now, mine) : changed(now, mine)), { onSuccess: onClose });
  };
  // The API names the fields of a disk as disks.<name>.<field>.
  const refusal = (part: string) => (new RegExp(`^disks[.][^:]*[.]${part}(\\[\\d+\\])?: `).test(change.error?.message ?? '') ? change.error?.message : undefined);
  const isAtField = ['path', 'tags', 'storageReserved'].some((part) => refusal(part) !== undefined);
  const room = disk?.storageMaximum ?? 0;
  return (
    <FormDialog
      title={existing === undefined ? `Add a disk to ${node.name}` : `Edit disk ${existing} of ${node.name}`}
      submit={existing === undefined ? 'Add' : 'Save'}
      onClose={onClose}
      onSubmit={submit}
      isPending={change.isPending}
      isDisabled={name.trim() === '' || path.trim() === '' || 'error' in parsed || isTaken}
      error={change.error}
      fields={isAtField ? ['disks'] : ['name']}
    >
      <TextInput label="Name" value={name} onChange={setName} isDisabled={existing !== undefined} error={isTaken ? nameTaken : undefined} refusal={fieldError(change.error, 'name')} />
      <TextInput
        label="Path"
        value={path}
        onChange={setPath}
        isDisabled={existing !== undefined}
        refusal={refusal('path')}
        description="A directory on the node, on a separate file system"
        takesFocus={existing === undefined}
        isRequired
      />
      <SizeInput
        label="Reserved for other uses"
        size={reserved}
        refusal={refusal('storageReserved')}
        note={room > 0 && 'bytes' in parsed && parsed.bytes >= room ? `The disk has ${bytes(room)}, so no replica will fit on it` : undefined}
      />
      <TextInput label="Tags" value={tags} onChange={setTags} refusal={refusal('tags')} description="Separated by commas" />
      <SchedulingFields value={scheduling} onChange={setScheduling} elsewhere="disks" />
    </FormDialog>
  );
}
