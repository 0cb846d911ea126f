import { useState } from 'react';
import { fieldError } from '../components/FormDialog';
import { SizeInput } from '../components/SizeInput';
import { bytes, sizeOf } from '../lib/format';
import { parseSize } from '../lib/size';
import { claimOf } from '../lib/volume';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './VolumeActionDialog';

export function ExpandDialog({ volumes, onClose }: ActionProps) {
  const volume = volumes[0];
  const now = sizeOf(volume?.size);
  const [size, setSize] = useState(`${Math.ceil(now / 2 ** 30) + 1}Gi`);
  const parsed = parseSize(size);
  const wanted = 'bytes' in parsed ? parsed.bytes : 0;
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'expand'), body: { size: String(wanted) } }));
  return (
    <ChangeForm
      change={change}
      title={`Expand ${those(volumes)}`}
      submit="Expand"
      onClose={onClose}
      isDisabled={wanted <= now}
      fields={['size']}
    >
      <p>
        It is {bytes(now)} now. A volume can grow while it is used; it cannot shrink.
        {volume !== undefined && claimOf(volume) !== '' && ` Its claim ${claimOf(volume)} grows with it.`}
      </p>
      <SizeInput label="New size" value={size} onChange={setSize} error={fieldError(change.mutation.error, 'size') ?? ('bytes' in parsed && wanted <= now ? 'must be more than it is now' : undefined)} takesFocus />
    </ChangeForm>
  );
}
