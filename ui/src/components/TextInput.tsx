import type { ReactNode } from 'react';
import { FieldError, Input, Label, Text, TextField } from 'react-aria-components';

interface Props {
  label: string;
  hideLabel?: boolean;
  value: string;
  onChange: (value: string) => void;
  description?: ReactNode;
  error?: string | undefined;
  type?: string;
  // takesFocus: a dialog begins there.
  takesFocus?: boolean;
  isRequired?: boolean;
  isDisabled?: boolean;
  inputMode?: 'numeric' | 'decimal' | 'text';
  autoComplete?: string;
}

export function TextInput({ label, hideLabel, value, onChange, description, error, type = 'text', takesFocus, isRequired, isDisabled, inputMode, autoComplete = 'off' }: Props) {
  return (
    <TextField
      className="field"
      value={value}
      onChange={onChange}
      type={type}
      isInvalid={error !== undefined && error !== ''}
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
      <FieldError className="field-error">{error}</FieldError>
    </TextField>
  );
}
