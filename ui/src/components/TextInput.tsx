import { useState, type ReactNode } from 'react';
import { FieldError, Input, Label, Text, TextField } from 'react-aria-components';

interface Props {
  label: string;
  hideLabel?: boolean;
  value: string;
  onChange: (value: string) => void;
  description?: ReactNode;
  error?: string | undefined;
  // refusal is the API's text about the value that it refused. It is not shown for any other value.
  refusal?: string | undefined;
  type?: string;
  // takesFocus: this is the first input of the dialog.
  takesFocus?: boolean;
  isRequired?: boolean;
  isDisabled?: boolean;
  inputMode?: 'numeric' | 'decimal' | 'text';
  autoComplete?: string;
}

export function TextInput({ label, hideLabel, value, onChange, description, error, refusal, type = 'text', takesFocus, isRequired, isDisabled, inputMode, autoComplete = 'off' }: Props) {
  const [refused, setRefused] = useState({ refusal, value });
  if (refused.refusal !== refusal) setRefused({ refusal, value });
  const wrong = error ?? (refused.value === value ? refusal : undefined);
  return (
    <TextField
      className="field"
      value={value}
      onChange={onChange}
      type={type}
      isInvalid={wrong !== undefined && wrong !== ''}
      // eslint-disable-next-line jsx-a11y/no-autofocus -- in a dialog and on the page of the login nothing comes before it
      autoFocus={takesFocus ?? false}
      isRequired={isRequired ?? false}
      isDisabled={isDisabled ?? false}
      validationBehavior="aria"
      autoComplete={autoComplete}
      {...(inputMode ? { inputMode } : {})}
      {...(hideLabel ? { 'aria-label': label } : {})}
    >
      {!hideLabel && <Label>{label}</Label>}
      <Input className="input" spellCheck={false} />
      {description !== undefined && (
        <Text slot="description" className="small">
          {description}
        </Text>
      )}
      <FieldError className="field-error">{wrong}</FieldError>
    </TextField>
  );
}
