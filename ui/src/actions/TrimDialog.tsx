import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

export function TrimDialog({ volumes, onClose }: ActionProps) {
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, 'trimFilesystem') }));
  return (
    <ChangeForm
      change={change}
      title={`Trim the file system of ${those(volumes)}`}
      submit="Trim"
      onClose={onClose}
    >
      <p>A trim frees the disk space of deleted files. It keeps all stored data, and pods can use the volume while it runs.</p>
      <p>If the trim takes longer than 40 seconds, this form closes and the trim continues. An Event of the volume reports the result.</p>
      <p role="status">{change.mutation.isPending && 'Trimming the file system …'}</p>
    </ChangeForm>
  );
}
