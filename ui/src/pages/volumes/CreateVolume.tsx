import { useState } from 'react';
import { useChange, useCollection } from '../../api/live';
import type { Volume } from '../../api/types';
import { fieldError, FormDialog } from '../../components/FormDialog';
import { SelectField } from '../../components/SelectField';
import { SizeInput, useSize } from '../../components/SizeInput';
import { TextInput } from '../../components/TextInput';
import { wholeNumber } from '../../lib/format';
import { volumeSize } from '../../lib/size';
import { tagsOf } from '../../lib/tags';

const fields = ['name', 'size', 'numberOfReplicas', 'dataLocality', 'accessMode', 'frontend', 'nodeSelector', 'diskSelector'] as const;

// CreateVolume creates a volume that no claim has requested.
export function CreateVolume({ onClose }: { onClose: () => void }) {
  const settings = useCollection('settings');
  const inForce = (name: string, otherwise: string) => settings.data?.find((s) => s.name === name)?.valueInForce ?? otherwise;
  const [name, setName] = useState('');
  const size = useSize('10Gi', volumeSize);
  // Settings may arrive after the form was opened.
  const [typedReplicas, setReplicas] = useState<string | null>(null);
  const [chosenLocality, setDataLocality] = useState<string | null>(null);
  const dataLocality = chosenLocality ?? inForce('default-data-locality', 'disabled');
  const replicas = dataLocality === 'strict-local' ? '1' : (typedReplicas ?? inForce('default-replica-count', '3'));
  const numberOfReplicas = wholeNumber(replicas);
  const [accessMode, setAccessMode] = useState('rwo');
  const [frontend, setFrontend] = useState('blockdev');
  const [nodeTags, setNodeTags] = useState('');
  const [diskTags, setDiskTags] = useState('');
  const create = useChange<Volume>('volumes');
  const { parsed } = size;
  const submit = () => {
    if ('error' in parsed) return;
    const body = {
      name: name.trim(),
      size: String(parsed.bytes),
      numberOfReplicas,
      dataLocality,
      accessMode,
      frontend,
      nodeSelector: tagsOf(nodeTags),
      diskSelector: tagsOf(diskTags),
    };
    create.mutate({ method: 'POST', link: '/v1/volumes', body }, { onSuccess: onClose });
  };
  const error = (field: (typeof fields)[number]) => fieldError(create.error, field);
  return (
    <FormDialog title="Create volume" submit="Create" onClose={onClose} onSubmit={submit} isPending={create.isPending} isDisabled={name.trim() === '' || 'error' in parsed || numberOfReplicas === null} error={create.error} fields={fields}>
      <TextInput label="Name" value={name} onChange={setName} error={error('name')} takesFocus isRequired description="Lower-case letters, digits and hyphens, at most 40 characters" />
      <SizeInput label="Size" size={size} refusal={error('size')} />
      <div className="pair">
        <TextInput
          label="Replicas"
          value={replicas}
          onChange={setReplicas}
          inputMode="numeric"
          isDisabled={dataLocality === 'strict-local'}
          error={numberOfReplicas === null ? 'must be a whole number' : error('numberOfReplicas')}
          description="Copies of the data, on different nodes"
        />
        <SelectField
          label="Data locality"
          value={dataLocality}
          onChange={setDataLocality}
          options={[
            ['disabled', 'disabled'],
            ['best-effort', 'best-effort'],
            ['strict-local', 'strict-local'],
          ]}
          error={error('dataLocality')}
          description="best-effort keeps a replica on the node where the volume is attached, if possible"
        />
      </div>
      <div className="pair">
        <SelectField
          label="Access mode"
          value={accessMode}
          onChange={setAccessMode}
          options={[
            ['rwo', 'rwo: one node at a time'],
            ['rwop', 'rwop: one pod at a time'],
            ['rwx', 'rwx: many nodes, over NFS'],
          ]}
          error={error('accessMode')}
        />
        <SelectField label="Frontend" value={frontend} onChange={setFrontend} options={[['blockdev', 'blockdev']]} error={error('frontend')} description="A block device on the node" />
      </div>
      <div className="pair">
        <TextInput label="Node tags" value={nodeTags} onChange={setNodeTags} error={error('nodeSelector')} description="Separated by commas. A node must have all of them" />
        <TextInput label="Disk tags" value={diskTags} onChange={setDiskTags} error={error('diskSelector')} description="Separated by commas. A disk must have all of them" />
      </div>
    </FormDialog>
  );
}
