import { useState } from 'react';
import type { Volume } from '../api/types';
import { fieldError } from '../components/FormDialog';
import { SelectField } from '../components/SelectField';
import { ChangeForm } from './ChangeForm';
import { actionLink, those, useForEach } from './useForEach';
import type { ActionProps } from './actionProps';

interface Props extends ActionProps {
  title: string;
  action: string;
  field: string;
  current: (v: Volume) => string;
  options: readonly (readonly [string, string])[];
  description?: string;
}

// ChoiceDialog sets a field to one of a few values.
export function ChoiceDialog({ volumes, onClose, title, action, field, current, options, description }: Props) {
  const first = volumes[0];
  const [value, setValue] = useState(first ? current(first) : '');
  const change = useForEach(volumes, (v) => ({ method: 'POST', link: actionLink(v, action), body: { [field]: value } }));
  const error = fieldError(change.mutation.error, field);
  return (
    <ChangeForm
      change={change}
      title={`${title} of ${those(volumes)}`}
      submit="Save"
      onClose={onClose}
      isDisabled={volumes.every((v) => current(v) === value)}
      fields={[field]}
    >
      <SelectField label={title} value={value} options={options} onChange={setValue} error={error} {...(description === undefined ? {} : { description })} />
    </ChangeForm>
  );
}
