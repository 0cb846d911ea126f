import { fieldError } from '../components/FormDialog';
import { SizeInput, useSize } from '../components/SizeInput';
import { bytes, sizeOf } from '../lib/format';
import { expandedSize } from '../lib/size';
import { claimOf } from '../lib/volume';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

export function ExpandDialog({ volumes, onClose }: ActionProps) {
  const volume = volumes[0];
  const now = sizeOf(volume?.size);
  const size = useSize(`${Math.ceil(now / 2 ** 30) + 1}Gi`, expandedSize(now));
  const wanted = 'bytes' in size.parsed ? size.parsed.bytes : null;
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'expand'), body: { size: String(wanted ?? 0) } }));
  return (
    <ChangeForm
      change={change}
      title={`Expand ${those(volumes)}`}
      submit="Expand"
      onClose={onClose}
      isDisabled={wanted === null}
      fields={['size']}
    >
      <p>
        The current size is {bytes(now)}. A volume can grow while pods use it. It cannot shrink.
        {volume !== undefined && claimOf(volume) !== '' && ` Its claim ${claimOf(volume)} grows with it.`}
      </p>
      <SizeInput label="New size" size={size} refusal={fieldError(change.mutation.error, 'size')} takesFocus />
    </ChangeForm>
  );
}
